"""All-reduce: the plain sum, the same bits on all ranks and in all runs, or a named error in time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from test_links import PATIENCE, results, run_workers

from sparkdml.comm.errors import OutOfStepError, PeerError
from sparkdml.comm.links import Links
from sparkdml.comm.topologies import (
    TOPOLOGIES,
    Gossip,
    LayoutError,
    Network,
    Topology,
    choose,
    named,
    sum_updates,
)
from sparkdml.comm.topologies.gossip import GRAPHS

SIZES = [1, 2, 3, 4, 5, 7, 8]
LENGTHS = [0, 1, 2, 5, 1000, 300_001]
EXACT = {name: topology() for name, topology in TOPOLOGIES.items() if topology.exact}

every_exact = pytest.mark.parametrize("topology", EXACT.values(), ids=EXACT.keys())
every_size = pytest.mark.parametrize("size", SIZES)


def vector(rank: int, length: int) -> np.ndarray:
    """Numbers of such different magnitudes that the order of a sum shows in its last bits."""
    rng = np.random.default_rng([rank, length])
    return rng.standard_normal(length) * 10.0 ** rng.integers(-8, 8, length)


def sums(topology: Topology, links: Links, times: int = 1) -> list[list[bytes]]:
    """The bits of the sums of all lengths, ``times`` over the same links."""
    found = []
    for _ in range(times):
        arrays = [vector(links.rank, length) for length in LENGTHS]
        for array in arrays:
            topology.all_reduce(links, array)
        found.append([array.tobytes() for array in arrays])
    return found


# the sum


@every_exact
@every_size
def test_all_ranks_get_the_sum_bit_for_bit_the_same_in_every_run(topology: Topology, size: int) -> None:
    """Over links made on demand, twice over the same ones, and over links made before."""
    first = results(run_workers(size, lambda links: sums(topology, links, 2)))
    again = results(
        run_workers(size, lambda links: sums(topology, links), neighbours=lambda rank: topology.neighbours(rank, size))
    )
    bits = [bits for worker in first + again for bits in worker]
    assert all(one == bits[0] for one in bits)
    for length, text in zip(LENGTHS, bits[0], strict=True):
        terms = [vector(rank, length) for rank in range(size)]
        bound = size * np.finfo(float).eps * np.sum(np.abs(terms), axis=0)
        assert (np.abs(np.frombuffer(text) - np.sum(terms, axis=0)) <= bound).all()


@every_exact
@every_size
def test_whole_numbers_are_summed_exactly(topology: Topology, size: int) -> None:
    def work(links: Links) -> np.ndarray:
        array = np.arange(1001.0) * (links.rank + 1)
        topology.all_reduce(links, array)
        return array

    for array in results(run_workers(size, work)):
        np.testing.assert_array_equal(array, np.arange(1001.0) * (size * (size + 1) // 2))


@every_exact
def test_values_that_are_not_finite_reach_all_ranks(topology: Topology) -> None:
    def work(links: Links) -> np.ndarray:
        array = np.zeros(6)
        if links.rank == 1:
            array[[1, 3]] = np.nan, np.inf
        topology.all_reduce(links, array)
        return array

    for array in results(run_workers(5, work)):
        np.testing.assert_array_equal(array, [0.0, np.nan, 0.0, np.inf, 0.0, 0.0])


@every_exact
@pytest.mark.parametrize("size", [2, 3])
def test_large_vectors_do_not_block(topology: Topology, size: int) -> None:
    def work(links: Links) -> bool:
        # whose chunks are larger than what sockets buffer
        array = np.full(1 << 22, 1.0 + links.rank)
        topology.all_reduce(links, array)
        return bool((array == size * (size + 1) // 2).all())

    assert all(results(run_workers(size, work)))


WRONG = {
    "float32": np.zeros(3, np.float32),
    "matrix": np.zeros((2, 2)),
    "strided": np.zeros(6)[::2],
    "read-only": np.broadcast_to(np.zeros(1), (1,)),
}


@pytest.mark.parametrize("array", WRONG.values(), ids=WRONG.keys())
def test_arrays_that_cannot_be_summed_in_place_are_refused(array: np.ndarray) -> None:
    def work(links: Links) -> None:
        for topology in EXACT.values():
            with pytest.raises(ValueError, match="only a contiguous, writable vector of float64"):
                topology.all_reduce(links, array)
        with pytest.raises(ValueError, match="only a contiguous, writable vector of float64"):
            Gossip().mix(links, array)

    results(run_workers(1, work))


# who talks with whom, and what it costs


@pytest.mark.parametrize("topology", [*EXACT.values(), Gossip()], ids=[*EXACT, "gossip"])
@pytest.mark.parametrize("size", [*SIZES, 6, 13, 16, 33])
def test_neighbours_are_mutual_and_reach_everybody(topology: Topology, size: int) -> None:
    near = [topology.neighbours(rank, size) for rank in range(size)]
    for rank, others in enumerate(near):
        assert rank not in others
        assert all(rank in near[other] for other in others)
    reached = {0}
    for _ in range(size):
        reached |= {other for rank in reached for other in near[rank]}
    assert reached == set(range(size))


@every_exact
@every_size
@pytest.mark.parametrize("length", [8, 8000, 200_000])
def test_the_cost_is_what_the_busiest_rank_sends_to_neighbours(topology: Topology, size: int, length: int) -> None:
    def work(links: Links) -> tuple[frozenset[int], int, int]:
        topology.all_reduce(links, np.zeros(length))
        return links.peers, links.messages_sent, max(links.bytes_sent, links.bytes_received)

    counted = results(run_workers(size, work))
    for rank, (peers, _, _) in enumerate(counted):
        assert peers == topology.neighbours(rank, size)
    cost = topology.cost(size, 8 * length, Network())
    # a chunk may be one number longer than the average
    slack = 8 * cost.messages
    most = max(messages for _, messages, _ in counted), max(moved for _, _, moved in counted)
    if topology.name == "tree":
        # the root receives one half of its messages and sends the other
        assert most == (cost.messages / 2, cost.bytes_moved / 2)
    elif topology.name == "ring" or size & (size - 1) == 0:
        assert {messages for _, messages, _ in counted} == {cost.messages}
        assert abs(most[1] - cost.bytes_moved) <= slack
    else:
        # folded numbers come first and go last, neither while others do
        assert most[0] == cost.messages - 1
        assert abs(most[1] - (cost.bytes_moved - 8 * length)) <= slack


def test_the_choice_follows_the_cost() -> None:
    for size in [1, 2, 3, 5, 8, 12, 64, 100]:
        for nbytes in [0, 800, 80_000, 8_000_000, 800_000_000]:
            cost = {name: t.cost(size, nbytes, Network()).seconds(Network()) for name, t in EXACT.items()}
            assert cost[choose(size, nbytes).name] == min(cost.values())


def test_short_vectors_go_in_few_messages_and_long_ones_in_few_bytes() -> None:
    assert {choose(size, 800).name for size in range(2, 100)} == {"halving-doubling"}
    for size in [3, 5, 6, 7, 12, 24]:
        assert choose(size, 80_000_000).name == "ring"
    assert choose(64, 80_000_000).name == "halving-doubling"
    # where messages take long, even long vectors go in few
    assert choose(24, 8_000_000, Network(alpha=1.0)).name == "halving-doubling"


def test_names_that_are_not_known_are_refused() -> None:
    assert [named(name).name for name in TOPOLOGIES] == list(TOPOLOGIES)
    with pytest.raises(
        ValueError, match="topology='star' is not known; it can be ring, tree, halving-doubling, gossip"
    ):
        named("star")
    with pytest.raises(ValueError, match="graph='star' is not known; it can be ring, hypercube"):
        Gossip("star")


# peers that fail


@every_exact
@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("connected", [True, False])
def test_all_others_get_an_error_where_one_never_calls(topology: Topology, size: int, connected: bool) -> None:
    missing, done = size - 2, threading.Semaphore(0)

    def work(links: Links) -> None:
        try:
            if links.rank != missing:
                topology.all_reduce(links, np.zeros(1000))
            else:
                for _ in range(size - 1):
                    assert done.acquire(timeout=PATIENCE)
        finally:
            done.release()

    near = topology.neighbours if connected else lambda rank, size: ()
    outcomes = run_workers(size, work, timeout=1.0, neighbours=lambda rank: near(rank, size))
    assert outcomes.pop(missing) is None
    for outcome in outcomes:
        assert isinstance(outcome, PeerError), repr(outcome)
        assert outcome.waited < 5.0
    assert any(outcome.rank == missing for outcome in outcomes)


@every_exact
def test_all_others_get_an_error_where_one_leaves_half_way(topology: Topology) -> None:
    def work(links: Links) -> None:
        for step in range(3):
            if links.rank == 1 and step == 2:
                return
            topology.all_reduce(links, np.zeros(5000))

    outcomes = run_workers(4, work, timeout=20.0)
    assert outcomes.pop(1) is None
    for outcome in outcomes:
        assert isinstance(outcome, PeerError), repr(outcome)
        assert outcome.waited < 5.0
    assert any(outcome.rank == 1 for outcome in outcomes)


@every_exact
@pytest.mark.parametrize("differ", ["length", "clock", "topology"])
def test_workers_out_of_step_get_an_error_and_no_numbers(topology: Topology, differ: str) -> None:
    """Rank 1 sums something else; whoever meets it or an error of it fails, none waits for the timeout."""
    other = next(one for one in EXACT.values() if one is not topology)

    def work(links: Links) -> None:
        odd = links.rank == 1
        links.clock = 8 if odd and differ == "clock" else 7
        array = np.zeros(104 if odd and differ == "length" else 100)
        (other if odd and differ == "topology" else topology).all_reduce(links, array)

    outcomes = run_workers(2, work, timeout=20.0)
    assert any(type(outcome) is OutOfStepError for outcome in outcomes)
    assert all(isinstance(outcome, PeerError) and outcome.waited < 5.0 for outcome in outcomes)


# updates


def update_of(rank: int) -> dict[str, Any]:
    given = {
        "loss": 0.5 + rank,
        "gradient": np.arange(3.0) + rank,
        "gram": np.full((2, 2), rank),
        "none": np.empty((0, 2)),
    }
    # in an order of its own on every rank
    return dict(list(given.items())[rank:] + list(given.items())[:rank])


@every_exact
@pytest.mark.parametrize("size", [1, 2, 3])
def test_updates_are_summed_name_by_name(topology: Topology, size: int) -> None:
    for total in results(run_workers(size, lambda links: sum_updates(topology, links, update_of(links.rank)))):
        ranks = sum(range(size))
        assert total.keys() == update_of(0).keys()
        assert type(total["loss"]) is float
        assert total["loss"] == 0.5 * size + ranks
        np.testing.assert_array_equal(total["gradient"], np.arange(3.0) * size + ranks)
        np.testing.assert_array_equal(total["gram"], np.full((2, 2), float(ranks)))
        assert total["none"].shape == (0, 2)


def test_updates_that_are_given_stay_as_they_are() -> None:
    def work(links: Links) -> None:
        given = {"gradient": np.ones(3), "loss": 1.0}
        total = sum_updates(named("ring"), links, given)
        np.testing.assert_array_equal(total["gradient"], np.full(3, float(links.size)))
        np.testing.assert_array_equal(given["gradient"], np.ones(3))
        assert not np.shares_memory(given["gradient"], total["gradient"])

    for size in (1, 2):
        results(run_workers(size, work))


ODD = {
    "name": {"gradients": np.zeros(4)},
    "shape": {"gradient": np.zeros((2, 2))},
    "length": {"gradient": np.zeros(5)},
    "one-more": {"gradient": np.zeros(4), "loss": 1.0},
}


@every_exact
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_updates_that_differ_are_an_error_on_all_ranks_that_names_them(topology: Topology, odd: Any) -> None:
    def work(links: Links) -> str:
        with pytest.raises(LayoutError) as caught:
            sum_updates(topology, links, odd if links.rank in (1, 3) else {"gradient": np.zeros(4)})
        # nothing is broken
        assert sum_updates(topology, links, {"loss": 1.0}) == {"loss": 4.0}
        return str(caught.value)

    for rank, message in enumerate(results(run_workers(4, work))):
        assert "ranks [0, 2] have the same; ranks [1, 3] have the same. Rank" in message
        assert f"Rank {rank} has {topology.name}: gradient" in message


def test_digests_travel_only_when_names_or_shapes_change() -> None:
    def work(links: Links) -> list[int]:
        counts = []
        for update in [{"a": 1.0}, {"a": 2.0}, {"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0}]:
            before = links.messages_sent
            sum_updates(named("halving-doubling"), links, update)
            counts.append(links.messages_sent - before)
        return counts

    assert results(run_workers(2, work)) == [[2, 1, 2, 1]] * 2


@every_exact
def test_a_rank_whose_update_changes_alone_is_out_of_step(topology: Topology) -> None:
    """Also where lengths agree: two numbers, and two digests."""

    def work(links: Links) -> None:
        sum_updates(topology, links, {"a": 1.0, "b": 1.0})
        sum_updates(topology, links, {"a": 1.0, "b" if links.rank else "c": 1.0})

    outcomes = run_workers(2, work, timeout=20.0)
    assert any(type(outcome) is OutOfStepError for outcome in outcomes)
    assert all(isinstance(outcome, PeerError) for outcome in outcomes)


def test_values_that_doubles_cannot_hold_are_refused() -> None:
    def work(links: Links) -> None:
        with pytest.raises(ValueError, match="'a' holds complex128"):
            sum_updates(named("ring"), links, {"a": np.zeros(2, complex)})

    results(run_workers(1, work))


# gossip

GOSSIPS = [("ring", size) for size in SIZES] + [("hypercube", size) for size in (1, 2, 4, 8)]
every_gossip = pytest.mark.parametrize(("graph", "size"), GOSSIPS, ids=[f"{graph}-{size}" for graph, size in GOSSIPS])


def matrix(gossip: Gossip, size: int) -> np.ndarray:
    W = np.zeros((size, size))
    for rank in range(size):
        for other, weight in gossip.weights(rank, size).items():
            W[rank, other] = weight
    return W


def mixed(gossip: Gossip, start: np.ndarray, steps: int) -> np.ndarray:
    """(steps + 1, workers, n) values after every step from ``start`` (workers, n)."""

    def work(links: Links) -> list[np.ndarray]:
        array, passed = start[links.rank].copy(), [start[links.rank]]
        for _ in range(steps):
            gossip.mix(links, array)
            passed.append(array.copy())
        return passed

    return np.array(results(run_workers(len(start), work))).swapaxes(0, 1)


@every_gossip
def test_weights_are_symmetric_and_doubly_stochastic(graph: str, size: int) -> None:
    W = matrix(Gossip(graph), size)
    assert (W >= 0.0).all()
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W.sum(0), 1.0, rtol=1e-15)
    adjacency = np.zeros((size, size))
    for rank in range(size):
        adjacency[rank, list(Gossip(graph).neighbours(rank, size))] = 1.0
    # both graphs are regular, and there Metropolis weights are those of the Laplacian over degree + 1
    degree = adjacency.sum(1)
    assert set(degree) == {min(2, size - 1) if graph == "ring" else np.log2(size)}
    np.testing.assert_allclose(W, np.eye(size) - (np.diag(degree) - adjacency) / (degree[0] + 1.0), atol=1e-15)


@every_gossip
def test_mixing_multiplies_by_the_matrix(graph: str, size: int) -> None:
    start = np.stack([vector(rank, 1000) for rank in range(size)])
    passed = mixed(Gossip(graph), start, 1)[-1]
    bound = 4 * np.finfo(float).eps * np.abs(start).max(0)
    assert (np.abs(passed - matrix(Gossip(graph), size) @ start) <= bound).all()


@every_gossip
def test_mixing_keeps_the_mean_and_converges_at_the_rate_of_the_second_eigenvalue(graph: str, size: int) -> None:
    W = matrix(Gossip(graph), size)
    values, vectors = np.linalg.eigh(W)
    # without the eigenvalue 1 of the mean
    rest = np.argsort(np.abs(values))[:-1]
    rate = np.abs(values[rest]).max(initial=0.0)
    slow = vectors[:, rest[-1]] if size > 1 else np.zeros(1)
    rng = np.random.default_rng(size)
    start = np.column_stack([rng.standard_normal((size, 20)), 1.0 + slow])
    passed = mixed(Gossip(graph), start, 12)
    np.testing.assert_allclose(passed.mean(1), np.broadcast_to(start.mean(0), (13, 21)), rtol=1e-13, atol=1e-14)
    distance = np.linalg.norm(passed - start.mean(0), axis=1)
    assert (distance[1:] <= rate * distance[:-1] + 1e-14).all()
    np.testing.assert_allclose(distance[:, -1], rate ** np.arange(13) * distance[0, -1], atol=1e-13)


@pytest.mark.parametrize("graph", list(GRAPHS))
def test_gossip_is_the_same_bit_for_bit_in_every_run(graph: str) -> None:
    start = np.stack([vector(rank, 100) for rank in range(4)])
    assert mixed(Gossip(graph), start, 3).tobytes() == mixed(Gossip(graph), start, 3).tobytes()


@pytest.mark.parametrize("graph", list(GRAPHS))
def test_gossip_talks_with_neighbours_only_and_costs_what_it_says(graph: str) -> None:
    gossip = Gossip(graph)

    def work(links: Links) -> tuple[frozenset[int], int, int]:
        gossip.mix(links, np.zeros(10))
        return links.peers, links.messages_sent, links.bytes_sent

    cost = gossip.cost(8, 80, Network())
    for rank, counted in enumerate(results(run_workers(8, work))):
        assert counted == (gossip.neighbours(rank, 8), cost.messages, cost.bytes_moved)


def test_gossip_offers_no_all_reduce() -> None:
    def work(links: Links) -> None:
        with pytest.raises(TypeError, match="gossip has no all_reduce"):
            Gossip().all_reduce(links, np.zeros(3))

    assert not Gossip.exact
    results(run_workers(2, work))


def test_a_hypercube_of_any_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a hypercube has 2, 4, 8, ... workers, not 6"):
        Gossip("hypercube").neighbours(0, 6)
