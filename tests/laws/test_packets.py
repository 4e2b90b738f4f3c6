"""Encoded updates of several workers: they add up in any order, and go to everyone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from sparkdml.comm.codecs import codec
from sparkdml.comm.gather import all_gather
from sparkdml.comm.links import Listener, connect
from sparkdml.comm.packets import Packets
from sparkdml.comm.topologies import Tree
from sparkdml.core import add_updates, payload_bytes


def packets(worker: int) -> Packets:
    array = np.random.default_rng(worker).standard_normal((5, 3))
    return Packets(((worker, codec("float16").encode(array)),))


def test_the_order_of_arrival_changes_no_bit() -> None:
    one = packets(0) + packets(1) + packets(2)
    other = packets(2) + (packets(1) + packets(0))
    np.testing.assert_array_equal(one.total(), other.total())
    decoded = [codec("float16").decode(packet) for _, packet in one.by_worker]
    np.testing.assert_allclose(one.total(), sum(decoded), rtol=1e-15)


def test_they_are_part_of_updates() -> None:
    total = add_updates({"x": packets(0), "loss": 1.0}, {"x": packets(1), "loss": 2.0})
    assert total["loss"] == 3.0
    assert payload_bytes(total) == 8 + packets(0).nbytes + packets(1).nbytes


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_everyone_gets_everything_however_long(size: int) -> None:
    texts = [bytes([rank]) * (rank * 70_000) for rank in range(size)]
    found: dict[int, list[bytes]] = {}
    listeners = [Listener() for _ in range(size)]
    addresses = [listener.address for listener in listeners]

    def worker(rank: int) -> None:
        topology = Tree()
        near = topology.neighbours(rank, size)
        with connect(rank, addresses, listeners[rank], b"s" * 32, 10.0, neighbours=near) as links:
            found[rank] = all_gather(topology, links, texts[rank])

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    for listener in listeners:
        listener.close()
    assert found == {rank: texts for rank in range(size)}
