"""The wire: what is sent arrives; what is no message changes nothing, is counted, and answered where it can be."""

from __future__ import annotations

import json
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparkdml.server.wire import (
    Connection,
    DamagedMessageError,
    Header,
    Limits,
    Listening,
    Reply,
    Security,
    ServerError,
    ServerRefusedError,
    ServerTimeoutError,
    ServerUnreachableError,
    connect,
    serve,
)
from sparkdml.server.wire.errors import RefusedCallError
from sparkdml.server.wire.messages import MAGIC, PREFIX, arrays_in, encode, read_header, read_prefix

SECURITY = Security.fresh()
LIMITS = Limits(message_bytes=2**27, idle_seconds=2.0, greeting_seconds=2.0)


def answer(op: str, header: Header, arrays: list[np.ndarray], peer: str) -> Reply:
    if op == "refuse":
        raise RefusedCallError("because", "it is refused")
    if op == "fail":
        raise KeyError("a fault")
    if op == "sleep":
        time.sleep(header["seconds"])
    return {"op": op, "said": header}, arrays


@pytest.fixture
def listening() -> Iterator[Listening]:
    with serve(answer, "127.0.0.1", 0, SECURITY, LIMITS) as found:
        yield found


def raw(listening: Listening) -> socket.socket:
    host, port = listening.address.split(":")
    return socket.create_connection((host, int(port)), 5.0)


def until(condition: object, seconds: float = 5.0) -> None:
    """Wait for what ends soon by itself."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def everything(sock: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    try:
        while piece := sock.recv(2**16):
            found += piece
    except ConnectionError:
        pass  # it closed with bytes of ours unread
    return found


arrays_of_all_kinds = st.lists(
    st.sampled_from(["<f4", "<f8", "<i4", "<i8", "|u1"]).flatmap(
        lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=7))
    ),
    max_size=5,
)


@settings(max_examples=50)
@given(arrays_of_all_kinds, st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.booleans()))
def test_decoded_is_what_was_encoded(arrays: list[np.ndarray], header: Header) -> None:
    header.pop("arrays", None)
    message = b"".join(encode(SECURITY.token, header, arrays))
    prefix = read_prefix(message[: PREFIX.size], LIMITS)
    text, body = message[PREFIX.size :][: prefix.header_bytes], message[PREFIX.size + prefix.header_bytes :]
    found, layouts = read_header(text, prefix.array_bytes, LIMITS)
    assert found == header
    for given_array, got in zip(arrays, arrays_in(np.frombuffer(body, np.uint8), layouts), strict=True):
        assert (got.dtype, got.shape) == (given_array.dtype, given_array.shape)
        assert got.tobytes() == given_array.tobytes()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"arrays": {}}',
        b'{"arrays": [["<f8"]]}',
        b'{"arrays": [["<f8", [-1]]]}',
        b'{"arrays": [["<f8", [true]]]}',
        b'{"arrays": [["<f8", [1.0]]]}',
        b'{"arrays": [["|O", [1]]]}',
        b'{"arrays": [["<f8", [4611686018427387904, 4611686018427387904]]]}',
        b'{"arrays": [["<f8", [2]]]}',
        b'{"arrays": [["<f8", [1, 1, 1]]]}',
        b'{"arrays": [["<f8", [1' + b"0" * 5000 + b"]]]}",
        b'{"arrays": [' + b'["<f8", [0]],' * 4096 + b'["<f8", [1]]]}',
    ],
    ids=lambda text: text[:40].decode(errors="replace"),
)
def test_a_header_that_is_none_is_told_so(header: bytes) -> None:
    with pytest.raises(DamagedMessageError):
        read_header(header, 8, LIMITS)


def test_nothing_but_arrays_of_numbers_can_be_sent() -> None:
    with pytest.raises(TypeError, match="object cannot be sent"):
        encode(SECURITY.token, {}, [np.array([{}])])


@pytest.mark.parametrize("count", [0, 1, 3, 5000, 5_000_000])
def test_arrays_come_back_whatever_their_size(listening: Listening, count: int) -> None:
    there = np.arange(count, dtype=np.float32)
    with connect(listening.address, SECURITY, 10.0) as connection:
        told, (back, odd) = connection.call("echo", {"n": count}, [there, np.arange(6, dtype=np.uint8)[::2]])
        place = np.empty_like(there)
        _, (filled,) = connection.call("echo", {}, [there], into=[place])
    assert told == {"op": "echo", "said": {"n": count}}
    np.testing.assert_array_equal(back, there)
    np.testing.assert_array_equal(odd, [0, 2, 4])
    assert filled is place
    np.testing.assert_array_equal(place, there)


def test_threads_take_turns(listening: Listening) -> None:
    wrong = []
    with connect(listening.address, SECURITY, 10.0) as connection:

        def work(number: int) -> None:
            for _ in range(20):
                _, (back,) = connection.call("echo", {}, [np.full(1000, number)])
                wrong.extend(back[back != number])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_refusals_and_faults_reach_the_caller_and_the_connection_goes_on(listening: Listening) -> None:
    with connect(listening.address, SECURITY, 10.0) as connection:
        with pytest.raises(ServerRefusedError, match=f"{listening.address}, asked to refuse 'w': it is") as refused:
            connection.call("refuse", {"table": "w"})
        with pytest.raises(ServerRefusedError, match="KeyError"):
            connection.call("fail", {})
        assert connection.call("echo", {})[0]["op"] == "echo"
    assert refused.value.kind == "because"
    assert listening.faults == {"refused call": 1, "failed call": 1}
    again = pickle.loads(pickle.dumps(refused.value))  # as Spark sends a task's error
    assert (str(again), again.kind) == (str(refused.value), "because")


def test_a_wrong_token_is_refused_before_anything_is_read(listening: Listening) -> None:
    with pytest.raises(ServerRefusedError, match="token") as refused:
        connect(listening.address, Security.fresh(), 5.0)
    assert refused.value.kind == "token"
    assert listening.faults == {"wrong token": 1}
    claim = PREFIX.pack(MAGIC, bytes(32), 2**20, 2**27)
    with raw(listening) as sock:
        sock.sendall(claim)  # nothing follows: the answer must not wait for it
        assert b"token" in everything(sock)


def test_what_claims_more_than_is_allowed_is_refused_before_memory_is_taken(listening: Listening) -> None:
    for sizes in ((2**21, 0), (2**32 - 1, 0), (2, 2**27 + 1), (2, 2**64 - 1)):
        with raw(listening) as sock:
            sock.sendall(PREFIX.pack(MAGIC, SECURITY.token, *sizes))
            assert b"are allowed" in everything(sock)
    assert listening.faults == {"damaged message": 4}


def test_a_call_without_an_op_is_no_call(listening: Listening) -> None:
    for header in ({}, {"op": 3}):
        with raw(listening) as sock:
            sock.sendall(b"".join(encode(SECURITY.token, header, [])))
            assert b"names no op" in everything(sock)


@pytest.mark.parametrize("text", [b"", PREFIX.pack(MAGIC, SECURITY.token, 100, 0)], ids=["silent", "half a message"])
def test_who_says_nothing_is_closed_and_counted(text: bytes) -> None:
    quick = Limits(idle_seconds=0.2, greeting_seconds=0.2)
    with serve(answer, "127.0.0.1", 0, SECURITY, quick) as listening:
        with raw(listening) as sock:
            sock.sendall(text)
            everything(sock)
        until(lambda: listening.faults == {"silent connection": 1})


def test_more_connections_than_allowed_are_closed_and_counted() -> None:
    few = Limits(connections=2)
    with serve(answer, "127.0.0.1", 0, SECURITY, few) as listening:
        with connect(listening.address, SECURITY, 5.0), connect(listening.address, SECURITY, 5.0):
            with pytest.raises(ServerUnreachableError):
                connect(listening.address, SECURITY, 5.0)
            assert listening.faults == {"too many connections": 1}
        until(lambda: listening.connections == 0)
        connect(listening.address, SECURITY, 5.0).close()


def test_nobody_there_and_nobody_in_time_are_told_apart(listening: Listening) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServerUnreachableError, match=f"127.0.0.1:{port}, asked to hello"):
        connect(f"127.0.0.1:{port}", SECURITY, 5.0)
    with connect(listening.address, SECURITY, 5.0) as connection:
        with pytest.raises(ServerTimeoutError, match="no byte moved for 0.1 s"):
            connection.call("sleep", {"seconds": 1.0}, timeout=0.1)
        assert connection.call("echo", {"n": 1})[0]["said"] == {"n": 1}  # not the late answer
    with pytest.raises(ValueError, match="host:port"):
        connect("nowhere", SECURITY, 5.0)


def test_closing_ends_connections_and_threads() -> None:
    before = threading.active_count()
    listening = serve(answer, "127.0.0.1", 0, SECURITY, LIMITS)
    connection = connect(listening.address, SECURITY, 5.0)
    listening.close()
    assert threading.active_count() == before
    with pytest.raises(ServerUnreachableError):
        connection.call("echo", {})
    connection.close()


# what strangers send

TOKENS = st.sampled_from([SECURITY.token, bytes(32)])
CLAIMS = st.builds(
    lambda token, header, size, cut: (
        struct.pack("<8s32sIQ", MAGIC, token, len(header), size) + header + bytes(min(size, 64))
    )[:cut],
    TOKENS,
    st.binary(max_size=40) | st.sampled_from([b'{"arrays": []}', json.dumps({"op": 1, "arrays": []}).encode()]),
    st.integers(0, 2**64 - 1) | st.integers(0, 64),
    st.integers(1, 200),
)


@pytest.fixture(scope="module")
def besieged() -> Iterator[Listening]:
    quick = Limits(message_bytes=2**20, header_bytes=2**12, idle_seconds=1.0, greeting_seconds=1.0)
    with serve(answer, "127.0.0.1", 0, SECURITY, quick) as found:
        yield found


@settings(max_examples=150)
@given(data=st.binary(min_size=1, max_size=300) | CLAIMS)
def test_bytes_of_strangers_are_counted_and_harm_nobody(besieged: Listening, data: bytes) -> None:
    before = sum(besieged.faults.values())
    with raw(besieged) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        everything(sock)
    until(lambda: sum(besieged.faults.values()) == before + 1)
    assert not besieged.faults["failed call"]
    with connect(besieged.address, SECURITY, 5.0) as connection:
        assert connection.call("echo", {"n": 1})[0]["said"] == {"n": 1}


# certificates


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name, where in (("server", "127.0.0.1"), ("client", "worker"), ("elsewhere", "10.0.0.1")):
        certificate = authority.issue_cert(where)
        certificate.private_key_pem.write_to_path(folder / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


def side(files: Path, name: str, authority: bool = False) -> Security:
    own = (str(files / f"{name}.pem"), str(files / f"{name}.key")) if name else ("", "")
    return Security(SECURITY.token, *own, str(files / "authority.pem") if authority else "")


def test_tls_carries_large_and_small_messages(files: Path) -> None:
    there = np.arange(1_000_003, dtype=np.float32)
    with (
        serve(answer, "127.0.0.1", 0, side(files, "server"), LIMITS) as listening,
        connect(listening.address, side(files, "", authority=True), 10.0) as connection,
    ):
        for count in (3, len(there)):
            np.testing.assert_array_equal(connection.call("echo", {}, [there[:count]])[1][0], there[:count])
        with pytest.raises(ServerError):
            connect(listening.address, SECURITY, 2.0)  # plain TCP
        until(lambda: sum(listening.faults.values()) == 1)


def test_a_server_of_another_name_is_not_trusted(files: Path) -> None:
    with (
        serve(answer, "127.0.0.1", 0, side(files, "elsewhere"), LIMITS) as listening,
        pytest.raises(ServerUnreachableError, match="certificate is not accepted"),
    ):
        connect(listening.address, side(files, "", authority=True), 5.0)


def test_mutual_tls_wants_the_clients_certificate(files: Path) -> None:
    with serve(answer, "127.0.0.1", 0, side(files, "server", authority=True), LIMITS) as listening:
        with connect(listening.address, side(files, "client", authority=True), 10.0) as connection:
            assert connection.call("echo", {})[0]["op"] == "echo"
        with pytest.raises(ServerUnreachableError):
            connect(listening.address, side(files, "", authority=True), 5.0)
        until(lambda: sum(listening.faults.values()) == 1)


def test_tokens_are_not_shown_and_settings_that_contradict_are_refused(files: Path) -> None:
    assert SECURITY.token.hex() not in repr(SECURITY)
    assert str(SECURITY.token) not in repr(SECURITY)
    with pytest.raises(ValueError, match="32"):
        Security(b"short")
    with pytest.raises(ValueError, match="both"):
        Security(SECURITY.token, certificate="a.pem")
    with pytest.raises(ValueError, match="certificate and a key"):
        side(files, "", authority=True).for_server()
    with pytest.raises(ValueError, match="authority"):
        Connection("127.0.0.1:1", side(files, "client"), 1.0)
