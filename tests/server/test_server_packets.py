"""Packets on their way to and from servers: decoded before the rule, and refused unless they are what they claim."""

from __future__ import annotations

import numpy as np
import pytest
from parameter_servers import client, servers

from sparkdml.comm.codecs import codec
from sparkdml.server.client import Push
from sparkdml.server.coding import Coder, packed, unpacked
from sparkdml.server.keys import Keys
from sparkdml.server.wire import ServerRefusedError
from sparkdml.server.wire.errors import RefusedCallError

VALUES = np.random.default_rng(0).standard_normal(301)


@pytest.mark.parametrize("spelling", ["float16", "int8", "top-k:0.5", "identity"])
@pytest.mark.parametrize("count", [1, 2])
def test_servers_add_what_packets_stand_for(spelling: str, count: int) -> None:
    """With what they lost, the sum of all is the sum of what was meant."""
    coder, sent = Coder(spelling, 0, 0), np.zeros_like(VALUES)
    with servers(count) as of, client(of) as c:
        c.create("w", len(VALUES))
        for clock in range(4):
            c.push(
                0, clock, 0, {"w": Push(VALUES, encode=lambda shard, part, clock=clock: coder("w", clock, shard, part))}
            )
            sent += VALUES
        found = c.pull({"w": None})["w"]
        lost = [memory.residual for _, memory in sorted(coder._lost.items())]
        np.testing.assert_allclose(found + (np.concatenate(lost) if lost else 0.0), sent, atol=1e-12)
        coded = c.pull({"w": None}, codecs={"w": spelling})["w"]
    if count == 1:
        np.testing.assert_array_equal(coded, codec(spelling).decode(codec(spelling).encode(found)))


def test_packets_of_some_rows() -> None:
    keys = Keys(np.array([3, 5, 200]))
    with servers() as of, client(of) as c:
        c.create("w", 301, rule={"name": "sgd"})
        c.push(0, 0, 0, {"w": Push(VALUES[:3], keys, encode=lambda _, part: packed(part, "float16"))})
        expected = np.zeros(301)
        expected[keys.array] = -VALUES[:3].astype(np.float16)
        np.testing.assert_array_equal(c.pull({"w": None})["w"], expected)
        np.testing.assert_array_equal(c.pull({"w": keys}, codecs={"w": "float16"})["w"], expected[keys.array])


def test_what_is_not_finite_goes_as_it_is() -> None:
    spoiled = VALUES.copy()
    spoiled[7] = np.nan
    np.testing.assert_array_equal(unpacked(packed(spoiled, "int8"), spoiled.shape), spoiled)
    np.testing.assert_array_equal(unpacked(Coder("int8", 0, 0)("w", 0, 0, spoiled), spoiled.shape), spoiled)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda sent: sent[:-1],
        lambda sent: np.append(sent, np.uint8(0)),
        lambda sent: np.where(np.arange(len(sent)) == 40, sent + 1, sent).astype(np.uint8),
        lambda sent: packed(VALUES[:-1], "int8"),
        lambda sent: packed(VALUES[None], "int8"),
        lambda sent: sent.view(np.uint8).astype(np.float64),
        lambda sent: np.zeros(0, np.uint8),
    ],
    ids=["short", "long", "changed", "of another size", "of another shape", "no bytes", "empty"],
)
def test_what_is_no_packet_of_these_rows_changes_nothing(spoil) -> None:
    with servers() as of, client(of) as c:
        c.create("w", len(VALUES))
        with pytest.raises(ServerRefusedError, match="packet"):
            c.push(0, 0, 0, {"w": Push(VALUES, encode=lambda _, part: spoil(packed(part, "int8")))})
        assert not c.pull({"w": None})["w"].any()
        assert c.arrive(0, 0) == 0


def test_a_codec_that_is_not_known_is_refused() -> None:
    with servers() as of, client(of) as c:
        c.create("w", len(VALUES))
        with pytest.raises(ServerRefusedError, match="unknown codec 'zip'"):
            c.pull({"w": None}, codecs={"w": "zip"})
        with pytest.raises(RefusedCallError, match="unknown codec"):
            packed(VALUES, "zip")
