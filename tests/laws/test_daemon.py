"""The process that forks Python workers."""

from __future__ import annotations

import pytest

from sparkdml.daemon import quietly


def test_a_worker_whose_socket_spark_has_closed_ends_without_a_word(capfd):
    def broken(sock, authenticated):
        raise BrokenPipeError(32, "Broken pipe")

    assert quietly(broken)("socket", True) == 1  # so the process ends
    assert capfd.readouterr() == ("", "")


def test_all_else_of_a_worker_stays_as_it_is():
    assert quietly(lambda sock, authenticated: 0)("socket", True) == 0

    def wrong(sock, authenticated):
        raise ValueError("another error")

    with pytest.raises(ValueError, match="another"):
        quietly(wrong)("socket", True)
