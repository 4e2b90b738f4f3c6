"""Links between workers: messages arrive or a named error does, in time, whatever peers and strangers do."""

from __future__ import annotations

import pickle
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from sparkdml.comm import handshake
from sparkdml.comm.errors import Address, OutOfStepError, PeerError, PeerLostError, PeerRefusedError, PeerTimeoutError
from sparkdml.comm.links import Links, Listener, connect

SECRET = secrets.token_bytes(32)
#: Of whole tests; a worker that is still busy then is stuck.
PATIENCE = 30.0
EIGHT_MEGABYTES = 1 << 20  # doubles


def open_sockets(addresses: Sequence[Address]) -> list[Any]:
    """Sockets of this process that have to do with the listeners at ``addresses``."""
    process, ports = psutil.Process(), {port for _, port in addresses}
    connections = process.net_connections if hasattr(process, "net_connections") else process.connections
    return [c for c in connections("tcp") if c.laddr.port in ports or (c.raddr and c.raddr.port in ports)]


def run_workers(
    size: int,
    work: Callable[[Links], Any],
    *,
    timeout: float = 5.0,
    neighbours: Callable[[int], Any] = lambda rank: (),
    visit: Callable[[Address, ExitStack], None] = lambda address, stack: None,
    **given: Callable[[int], Any],
) -> list[Any]:
    """What ``work`` returned or raised on each of ``size`` workers, threads of this process.

    ``given`` are other arguments of ``connect``, each a function of the rank; ``visit`` sees every listener's address
    before workers start. Fails if a worker is stuck or leaves a socket open.
    """
    outcomes: list[Any] = [None] * size
    with ExitStack() as stack, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        listeners = [stack.enter_context(Listener()) for _ in range(size)]
        addresses = [listener.address for listener in listeners]
        for address in addresses:
            visit(address, stack)

        def worker(rank: int) -> None:
            arguments = {name: make(rank) for name, make in {"secret": lambda rank: SECRET, **given}.items()}
            try:
                with connect(
                    rank, addresses, listeners[rank], timeout=timeout, neighbours=neighbours(rank), **arguments
                ) as links:
                    outcomes[rank] = work(links)
            except Exception as error:
                # with its traceback, which keeps whatever a failing call forgot to close
                outcomes[rank] = error

        threads = [threading.Thread(target=worker, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), f"stuck: {outcomes}"
        stack.close()
        assert not open_sockets(addresses)
    ports = [str(port) for _, port in addresses]
    assert not [w for w in caught if w.category is ResourceWarning and any(port in str(w.message) for port in ports)]
    return outcomes


def results(outcomes: list[Any]) -> list[Any]:
    """The outcomes, none of which may be an error."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def everyone_else(size: int) -> Callable[[int], list[int]]:
    return lambda rank: [other for other in range(size) if other != rank]


def swap(links: Links, size: int = 5) -> np.ndarray:
    """What the other of two workers sent: its rank, ``size`` times."""
    came = np.full(size, np.nan)
    links.exchange(1 - links.rank, np.full(size, float(links.rank)), 1 - links.rank, came)
    return came


def peer_socket(links: Links) -> socket.socket:
    """The socket to the only other worker, for a peer that misbehaves."""
    return links._peers[1 - links.rank].sock


# messages


@pytest.mark.parametrize("neighbours", [lambda rank: (), everyone_else(2)], ids=["on-demand", "at-once"])
@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_two_workers_swap_arrays(neighbours: Any, size: int) -> None:
    zero, one = results(run_workers(2, lambda links: swap(links, size), neighbours=neighbours))
    np.testing.assert_array_equal(zero, np.full(size, 1.0))
    np.testing.assert_array_equal(one, np.full(size, 0.0))


@pytest.mark.parametrize("size", [2, 3])
def test_messages_larger_than_all_buffers_pass_each_other(size: int) -> None:
    """Everybody sends before it receives, around a circle."""

    def work(links: Links) -> bool:
        out, came = np.full(EIGHT_MEGABYTES, float(links.rank)), np.empty(EIGHT_MEGABYTES)
        before = (links.rank - 1) % size
        links.exchange((links.rank + 1) % size, out, before, came)
        return bool((came == before).all())

    assert results(run_workers(size, work)) == [True] * size


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64, np.complex128])
def test_arrays_of_any_type_and_shape_arrive_where_they_should(dtype: type) -> None:
    def work(links: Links) -> np.ndarray:
        whole = np.zeros((5, 3, 2), dtype)
        out = np.arange(12).reshape(2, 3, 2).astype(dtype) + dtype(links.rank)
        links.exchange(1 - links.rank, out, 1 - links.rank, whole[1:3])
        return whole

    zero, one = results(run_workers(2, work))
    for came, other in ((zero, 1), (one, 0)):
        np.testing.assert_array_equal(came[1:3].ravel(), np.arange(12) + other)
        assert not came[[0, 3, 4]].any()


def test_messages_of_any_sizes_keep_their_order() -> None:
    sizes = [0, 3, 0, 0, 100_000, 1, 70_000, 2]

    def work(links: Links) -> list[np.ndarray]:
        if links.rank == 0:
            for number, size in enumerate(sizes):
                links.send(1, np.full(size, float(number)))
            return []
        arrived = [np.empty(size) for size in sizes]
        for array in arrived:
            links.receive(0, array)
        return arrived

    _, arrived = results(run_workers(2, work))
    for number, (size, array) in enumerate(zip(sizes, arrived, strict=True)):
        np.testing.assert_array_equal(array, np.full(size, float(number)))


def test_what_is_sent_is_counted_in_bytes_of_numbers() -> None:
    def work(links: Links) -> tuple[int, int, int]:
        swap(links, 10)
        if links.rank == 0:
            links.send(1, np.zeros(3))
        else:
            links.receive(0, np.empty(3))
        return links.messages_sent, links.bytes_sent, links.bytes_received

    assert results(run_workers(2, work)) == [(2, 104, 80), (1, 80, 104)]


REFUSED = {
    "strided": (lambda links: links.send(1 - links.rank, np.zeros(10)[::2]), "contiguous"),
    "read-only": (lambda links: links.receive(1 - links.rank, np.broadcast_to(np.zeros(1), (1,))), "read-only"),
    "itself": (lambda links: links.send(links.rank, np.zeros(1)), "no peer of rank"),
    "nobody": (lambda links: links.receive(2, np.zeros(1)), "rank . of 2 has no peer of rank 2"),
    "no-array": (lambda links: links.exchange(1 - links.rank, None, None, None), "go together"),
    "no-rank": (lambda links: links.exchange(None, None, None, np.zeros(1)), "go together"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_arguments_are_refused_and_harm_nothing(call: Callable[[Links], None], message: str) -> None:
    def work(links: Links) -> np.ndarray:
        with pytest.raises(ValueError, match=message):
            call(links)
        return swap(links)

    results(run_workers(2, work))


def test_wrong_arguments_of_connect_are_refused() -> None:
    with Listener() as listener:
        two = [listener.address] * 2
        with pytest.raises(ValueError, match="rank=2 is not among the 2 addresses"):
            connect(2, two, listener, SECRET, 1.0)
        with pytest.raises(ValueError, match="5 bytes; take 16 or more"):
            connect(0, two, listener, b"guess", 1.0)
        with pytest.raises(ValueError, match="timeout=0"):
            connect(0, two, listener, SECRET, 0)
        with pytest.raises(ValueError, match="no peer of rank 0"):
            connect(0, two, listener, SECRET, 1.0, neighbours=[0])
    with pytest.raises(ValueError, match="no address that peers can dial"):
        Listener("0.0.0.0")


# peers that fail


def check_error(error: Any, kind: type[PeerError], rank: int, timeout: float) -> None:
    assert type(error) is kind, repr(error)
    assert error.rank == rank
    assert f"rank {rank} at 127.0.0.1:{error.address[1]}" in str(error)
    assert 0.0 <= error.waited < timeout + 5.0
    if kind is PeerTimeoutError:
        assert error.waited >= timeout


@pytest.mark.parametrize("size", [1, EIGHT_MEGABYTES])
@pytest.mark.parametrize("direction", ["send", "receive"])
def test_a_peer_that_never_calls_is_a_timeout(direction: str, size: int) -> None:
    """Short messages can be sent to it, as they fit buffers."""
    done = threading.Event()

    def work(links: Links) -> None:
        try:
            if links.rank == 0:
                getattr(links, direction)(1, np.zeros(size))
            else:
                done.wait(PATIENCE)
        finally:
            done.set()

    error, _ = run_workers(2, work, timeout=0.5, neighbours=everyone_else(2))
    if direction == "send" and size == 1:
        assert error is None
    else:
        check_error(error, PeerTimeoutError, 1, 0.5)
        assert {"send": "took no bytes for", "receive": "sent no bytes for"}[direction] in str(error)


@pytest.mark.parametrize("absent", [0, 1], ids=["the-dialler", "the-listener"])
def test_a_peer_that_never_connects_is_a_timeout(absent: int) -> None:
    done = threading.Event()

    def work(links: Links) -> None:
        try:
            done.wait(PATIENCE) if links.rank == absent else swap(links)
        finally:
            done.set()

    error = run_workers(2, work, timeout=0.5)[1 - absent]
    check_error(error, PeerTimeoutError, absent, 0.5)
    assert ("did not connect within 0.5 s" if absent == 0 else "did not answer within 0.5 s") in str(error)


def test_a_host_where_nobody_listens_is_a_lost_peer_at_once() -> None:
    with Listener() as listener, Listener() as gone:
        addresses = [listener.address, gone.address]
        gone.close()
        with pytest.raises(PeerLostError, match=f"rank 1 at 127.0.0.1:{addresses[1][1]}") as caught:
            connect(0, addresses, listener, SECRET, 20.0, neighbours=[1])
        assert caught.value.waited < 10.0
    assert not open_sockets(addresses)


@pytest.mark.parametrize("cut", [0, 20, 48, 5000], ids=["nothing", "half-a-header", "a-header", "half-the-numbers"])
def test_a_peer_that_closes_half_way_is_lost_at_once(cut: int) -> None:
    def work(links: Links) -> np.ndarray | None:
        if links.rank == 0:
            return swap(links, 1000)
        header = struct.pack("<24sQQQ", b"", 0, 0, 8000)
        peer_socket(links).sendall((header + bytes(8000))[:cut])
        return None

    error, _ = run_workers(2, work, timeout=20.0, neighbours=everyone_else(2))
    check_error(error, PeerLostError, 1, 5.0)


def test_a_peer_that_closes_while_it_is_sent_to_is_lost_at_once() -> None:
    def work(links: Links) -> None:
        if links.rank == 0:
            links.send(1, np.zeros(EIGHT_MEGABYTES))

    error, _ = run_workers(2, work, timeout=20.0, neighbours=everyone_else(2))
    check_error(error, PeerLostError, 1, 5.0)


def test_a_slow_peer_is_waited_for_as_long_as_bytes_move() -> None:
    def work(links: Links) -> np.ndarray | None:
        if links.rank == 0:
            came = np.empty(1000)
            links.receive(1, came)
            return came
        text = struct.pack("<24sQQQ", b"", 0, 0, 8000) + np.arange(1000.0).tobytes()
        for first in range(0, len(text), 700):
            peer_socket(links).sendall(text[first : first + 700])
            time.sleep(0.1)
        return None

    came, _ = results(run_workers(2, work, timeout=1.0, neighbours=everyone_else(2)))
    np.testing.assert_array_equal(came, np.arange(1000.0))


def _skip_one(links: Links) -> None:
    links._peers[0].sent += 1


OUT_OF_STEP = {
    "longer": (lambda links: None, 6, "message 0 of 48 bytes"),
    "shorter": (lambda links: None, 0, "message 0 of 0 bytes"),
    "another-round": (lambda links: setattr(links, "clock", 3), 5, "'' at clock 3, message 0"),
    "another-sum": (lambda links: setattr(links, "kind", "tree"), 5, "'tree' at clock 0"),
    "another-message": (_skip_one, 5, "message 1 of 40 bytes"),
}


@pytest.mark.parametrize(("change", "size", "named"), OUT_OF_STEP.values(), ids=OUT_OF_STEP.keys())
def test_a_peer_out_of_step_is_an_error_that_says_how(change: Any, size: int, named: str) -> None:
    done = threading.Event()

    def work(links: Links) -> None:
        if links.rank == 1:
            change(links)
            links.send(0, np.zeros(size))
            done.wait(PATIENCE)
            return
        try:
            with pytest.raises(OutOfStepError, match="is out of step") as caught:
                links.receive(1, np.empty(5))
        finally:
            done.set()
        check_error(caught.value, OutOfStepError, 1, 5.0)
        assert named in str(caught.value)
        with pytest.raises(ValueError, match="these links are closed: OutOfStepError"):
            links.receive(1, np.empty(5))

    results(run_workers(2, work, neighbours=everyone_else(2)))


def test_an_error_closes_all_links_so_that_others_hear_of_it_at_once() -> None:
    """Rank 2 waits for rank 1, which waits in vain for rank 0."""
    done = threading.Event()

    def work(links: Links) -> None:
        if links.rank == 0:
            done.wait(PATIENCE)
        elif links.rank == 1:
            links.timeout = 0.3
            links.receive(0, np.empty(1))
        else:
            try:
                links.receive(1, np.empty(1))
            finally:
                done.set()

    _, one, two = run_workers(3, work, timeout=20.0, neighbours=everyone_else(3))
    check_error(one, PeerTimeoutError, 0, 0.3)
    check_error(two, PeerLostError, 1, 5.0)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(PeerTimeoutError("sent no bytes", 3, ("host", 7), 1.5)))
    assert type(error) is PeerTimeoutError
    assert (error.rank, error.address, error.waited) == (3, ("host", 7), 1.5)
    assert str(error) == "rank 3 at host:7 sent no bytes"


# the handshake


OTHERS = {
    "secret": {"secret": lambda rank: SECRET if rank else secrets.token_bytes(32)},
    "fit": {"fit": lambda rank: "this" if rank else "that"},
}


@pytest.mark.parametrize("given", OTHERS.values(), ids=OTHERS.keys())
def test_a_worker_with_another_secret_or_fit_is_refused(given: Any) -> None:
    """Rank 0 has another one; ranks 1 and 2 find each other."""

    def work(links: Links) -> tuple[float, Any]:
        came = np.empty(1)
        if links.rank:
            links.exchange(3 - links.rank, np.array([float(links.rank)]), 3 - links.rank, came)
        try:
            links.connect([1] if links.rank == 0 else [0])
        except PeerError as error:
            return float(came[0]), error
        return float(came[0]), None

    outcomes = results(run_workers(3, work, timeout=1.5, **given))
    assert [came for came, _ in outcomes[1:]] == [2.0, 1.0]
    check_error(outcomes[0][1], PeerRefusedError, 1, 1.5)
    assert "another secret, is in another fit" in str(outcomes[0][1])
    check_error(outcomes[1][1], PeerTimeoutError, 0, 1.5)
    reason = "does not know the secret" if "secret" in given else "is in another fit"
    assert reason in str(outcomes[1][1])


def identity(rank: int, secret: bytes = SECRET, fit: bytes = bytes(32)) -> Any:
    return handshake.Identity(rank, 3, fit, secret)


def shake(dialer: Any, acceptor: Any) -> tuple[bytes, bytes, bytes]:
    """The three texts of a handshake between two generators, which must succeed."""
    dialer.send(None)
    hello, _ = acceptor.send(None)
    claim, _ = dialer.send(hello)
    answer, _ = acceptor.send(claim)
    with pytest.raises(StopIteration):
        acceptor.send(b"")
    with pytest.raises(StopIteration):
        dialer.send(answer)
    return hello, claim, answer


def test_a_handshake_that_was_overheard_is_of_no_use() -> None:
    hello, claim, answer = shake(handshake.dial(identity(0), 1), handshake.accept(identity(1), ()))
    acceptor = handshake.accept(identity(1), ())
    acceptor.send(None)
    assert acceptor.send(claim) == (bytes(32), 0)
    dialer = handshake.dial(identity(0), 1)
    dialer.send(None)
    dialer.send(hello)
    with pytest.raises(handshake.RefusedError, match="could not prove"):
        dialer.send(answer)


@pytest.mark.parametrize(
    ("who", "peer", "me", "taken"),
    [(0, 2, 1, ()), (2, 1, 1, ()), (1, 1, 1, ()), (0, 1, 1, (0,)), (2, 0, 0, ())],
    ids=["for-another", "from-above", "from-itself", "twice", "the-wrong-way"],
)
def test_ranks_that_are_not_due_are_refused(who: int, peer: int, me: int, taken: tuple[int, ...]) -> None:
    dialer, acceptor = handshake.dial(identity(who), peer), handshake.accept(identity(me), taken)
    dialer.send(None)
    claim, _ = dialer.send(acceptor.send(None)[0])
    assert acceptor.send(claim) == (bytes(32), 0)
    with pytest.raises(handshake.RefusedError, match=f"rank {who} dials rank {peer}"):
        acceptor.send(b"")
    with pytest.raises(handshake.RefusedError, match="refused this worker"):
        dialer.send(bytes(32))


def test_the_proof_of_one_side_does_not_serve_the_other() -> None:
    """A stranger who sends the dialler's own proof back."""
    dialer = handshake.dial(identity(0), 1)
    dialer.send(None)
    claim, _ = dialer.send(struct.pack("<16s32s", b"sparkdml links 1", bytes(32)))
    with pytest.raises(handshake.RefusedError, match="could not prove"):
        dialer.send(claim[-32:])


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10], ids=["closes", "garbage"])
def test_a_stranger_at_the_address_of_a_peer_is_an_error(answer: bytes) -> None:
    with Listener() as listener, Listener() as stranger:

        def serve() -> None:
            stranger.socket.setblocking(True)
            sock, _ = stranger.socket.accept()
            with sock:
                sock.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        addresses = [listener.address, stranger.address]
        with pytest.raises(PeerRefusedError if answer else PeerLostError) as caught:
            connect(0, addresses, listener, SECRET, 5.0, neighbours=[1])
        thread.join(PATIENCE)
    check_error(caught.value, type(caught.value), 1, 5.0)
    assert not open_sockets(addresses)


STRANGERS = {
    "silent": b"",
    "garbage": secrets.token_bytes(5000),
    "a-little-garbage": b"GET",
    "right-words-wrong-proof": struct.pack(
        "<16s32s32sII32s", b"sparkdml links 1", bytes(32), bytes(32), 0, 1, bytes(32)
    ),
}


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("text", STRANGERS.values(), ids=STRANGERS.keys())
def test_strangers_disturb_nobody(text: bytes, leaves: bool) -> None:
    """They come before the workers do."""

    def intrude(address: Address, stack: ExitStack) -> None:
        for _ in range(5):
            sock = stack.enter_context(socket.create_connection(address))
            sock.sendall(text)
            if leaves:
                sock.close()

    assert results(run_workers(3, around, visit=intrude)) == [2.0, 0.0, 1.0]


def around(links: Links) -> float:
    came = np.empty(1)
    after, before = (links.rank + 1) % links.size, (links.rank - 1) % links.size
    links.exchange(after, np.array([float(links.rank)]), before, came)
    return float(came[0])


def test_a_stranger_that_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "SECONDS", 0.1)
    with Listener() as zero, Listener() as one, socket.create_connection(one.address) as stranger:
        stranger.settimeout(PATIENCE)
        with pytest.raises(PeerTimeoutError, match="proved nothing within 0.1 s"):
            connect(1, [zero.address, one.address], one, SECRET, 0.5, neighbours=[0])
        assert len(stranger.recv(100)) == 48
        assert stranger.recv(100) == b""


# the end


def test_closing_twice_is_closing_once() -> None:
    def work(links: Links) -> None:
        swap(links)
        links.close()
        links.close()
        assert links.peers == frozenset()
        with pytest.raises(ValueError, match="these links are closed: closed by its owner"):
            swap(links)

    results(run_workers(2, work))


def test_what_was_sent_before_closing_arrives() -> None:
    def work(links: Links) -> float:
        if links.rank == 0:
            links.send(1, np.ones(EIGHT_MEGABYTES))
            return 0.0
        came = np.empty(EIGHT_MEGABYTES)
        links.receive(0, came)
        return float(came.sum())

    assert results(run_workers(2, work))[1] == EIGHT_MEGABYTES


PROCESS = """
import sys
import numpy as np
from sparkdml.comm.links import Listener, connect

rank, secret = int(sys.argv[1]), sys.stdin.readline().strip()
with Listener() as listener:
    print(listener.address[1], flush=True)
    addresses = [("127.0.0.1", int(port)) for port in sys.stdin.readline().split()]
    with connect(rank, addresses, listener, bytes.fromhex(secret), 10.0, fit="a") as links:
        came = np.empty(1_000_000)
        for _ in range(3):
            links.exchange(1 - rank, np.full(1_000_000, float(rank)), 1 - rank, came)
        print(came.min(), came.max())
"""


def test_two_processes_swap_large_arrays() -> None:
    root = Path(__file__).resolve().parents[2]
    with ExitStack() as stack:
        workers = []
        for rank in (0, 1):
            arguments = [sys.executable, "-c", PROCESS, str(rank)]
            worker = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            worker.stdin.write(SECRET.hex() + "\n")
            worker.stdin.flush()
        ports = " ".join(worker.stdout.readline().strip() for worker in workers)
        ends = []
        for worker in workers:
            worker.stdin.write(ports + "\n")
            worker.stdin.flush()
        for worker in workers:
            ends.append(worker.communicate(timeout=PATIENCE))
    assert [out.split() for out, _ in ends] == [["1.0", "1.0"], ["0.0", "0.0"]], ends
