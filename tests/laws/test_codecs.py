"""Laws of every codec, and what packets and error feedback promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sparkdml.comm.codecs import CODECS, Codec, ErrorFeedback, Packet, codec, decode

#: Every codec of the registry, with an argument where it takes one.
SPELLINGS = [
    "identity",
    "sparse-or-dense",
    "float16",
    "bfloat16",
    "int8",
    "int8-stochastic",
    "1-bit",
    "threshold:0.5",
    "threshold:3.0",
    "top-k:0.1",
    "top-k:1.0",
    "random-k:0.3",
    "low-rank:2",
    "power-sgd:2",
]
SHAPES = [(0,), (1,), (5,), (300, 7), (0, 3), (), (2, 3, 4)]

every_codec = pytest.mark.parametrize("compressor", [codec(s) for s in SPELLINGS], ids=SPELLINGS)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)

pytestmark = pytest.mark.filterwarnings("error")


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape))


def vectors() -> dict[str, np.ndarray]:
    rng, n = np.random.default_rng(7), 3000
    signs = rng.choice([-1.0, 1.0], n)
    huge, tiny = np.finfo(np.float64).max, np.finfo(np.float64).smallest_subnormal
    return {
        "normal": rng.standard_normal(n),
        "cauchy": rng.standard_cauchy(n),
        "all-magnitudes": signs * 10 ** rng.uniform(-320, 308, n),
        "constant": np.full(n, 0.1),
        "constant-negative": np.full(n, -3.0),
        "alternating": 0.7 * signs,
        "huge": 1e300 * rng.standard_normal(n),
        "largest": huge * signs,
        "all-largest": np.full(n, huge),
        "tiny": 1e-300 * rng.standard_normal(n),
        "subnormal": tiny * rng.integers(-1000, 1000, n),
        "smallest": np.full(n, tiny),
        "one-of-many": np.where(np.arange(n) == 1234, -1e-3, 0.0),
        "halves-range": signs * 2.0 ** rng.uniform(-14, 15.9, n),
        "matrix": 1e8 * rng.standard_normal((60, 50)),
        "huge-matrix": 1e307 * rng.standard_normal((60, 50)),
        "subnormal-matrix": tiny * rng.integers(-1000, 1000, (60, 50)),
        "matrix-of-rank-1": np.outer(rng.standard_cauchy(60), rng.standard_normal(50)),
    }


VECTORS = vectors()
every_vector = pytest.mark.parametrize("kind", VECTORS)


def norm_ratio(errors: np.ndarray, array: np.ndarray) -> float:
    """``||errors|| / ||array||`` without overflow and underflow."""
    largest = np.abs(array).max()
    return float(np.linalg.norm(errors / largest) / np.linalg.norm(array / largest))


def assert_same_packet(a: Packet, b: Packet) -> None:
    assert (a.codec, a.shape, list(a.parts)) == (b.codec, b.shape, list(b.parts))
    for name, value in a.parts.items():
        other = b.parts[name]
        assert type(value) is type(other)
        if isinstance(value, np.ndarray):
            assert isinstance(other, np.ndarray)
            assert value.dtype == other.dtype
            assert value.tobytes() == other.tobytes()
        else:
            assert value == other


def test_every_codec_of_the_registry_is_listed_here() -> None:
    assert {spelling.split(":")[0] for spelling in SPELLINGS} == CODECS.keys()


# -- every codec


@every_codec
@every_shape
def test_shapes_are_kept(compressor: Codec, shape: tuple[int, ...]) -> None:
    decoded = compressor.decode(compressor.encode(normal(shape)))
    assert decoded.shape == shape
    assert decoded.dtype == np.float64
    assert decoded.flags.writeable


@every_codec
@every_shape
def test_zeros_stay_zeros(compressor: Codec, shape: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(compressor.decode(compressor.encode(np.zeros(shape))), np.zeros(shape))


@every_codec
@pytest.mark.parametrize("seed", [3, (5, 0, 12)])
def test_one_seed_gives_one_packet(compressor: Codec, seed) -> None:
    array = normal((40, 30))
    assert_same_packet(compressor.encode(array, seed), compressor.encode(array.copy(), seed))


@pytest.mark.parametrize("spelling", ["int8-stochastic", "random-k:0.3", "power-sgd:2"])
def test_seeds_matter_to_codecs_that_draw(spelling: str) -> None:
    packets = {codec(spelling).encode(normal((40, 30)), seed).to_bytes() for seed in (0, 1, (0, 1), (1, 0))}
    assert len(packets) == 4


@every_codec
@every_vector
def test_errors_are_within_the_bound(compressor: Codec, kind: str) -> None:
    array = VECTORS[kind]
    packet = compressor.encode(array, seed=1)
    decoded = compressor.decode(packet)
    assert np.isfinite(decoded).all()
    with np.errstate(over="ignore"):
        errors = np.clip(decoded - array, -np.finfo(float).max, np.finfo(float).max)
    # one rounding of float64 an entry, which is 5e-324 for the smallest
    rounding = 1e-12 + math.sqrt(array.size) * (5e-324 / np.abs(array).max())
    assert norm_ratio(errors, array) <= compressor.error_bound(array) * (1 + 1e-12) + rounding


@every_codec
def test_bounds_hold_for_the_shortest_arrays(compressor: Codec) -> None:
    for array in (np.array([-2.0]), np.array([1.0, 1e-9]), np.array([3.0, -3.0, 3.0])):
        errors = compressor.decode(compressor.encode(array, seed=2)) - array
        assert norm_ratio(errors, array) <= compressor.error_bound(array) + 1e-12


@every_codec
@every_vector
def test_lossless_codecs_lose_nothing_and_others_say_so(compressor: Codec, kind: str) -> None:
    array = VECTORS[kind]
    if compressor.lossless:
        assert compressor.decode(compressor.encode(array)).tobytes() == array.tobytes()
        assert compressor.error_bound(array) == 0.0


@pytest.mark.parametrize("spelling", ["identity", "sparse-or-dense"])
@pytest.mark.parametrize("zeros", [0, 90])
def test_lossless_codecs_carry_every_bit_pattern(spelling: str, zeros: int) -> None:
    array = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 5e-324, *np.zeros(zeros)])
    assert codec(spelling).decode(codec(spelling).encode(array)).tobytes() == array.tobytes()


@every_codec
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_lossy_codecs_refuse_what_is_not_finite(compressor: Codec, bad: float) -> None:
    array = normal((4, 3))
    array[2, 1] = bad
    if not compressor.lossless:
        with pytest.raises(ValueError, match=rf"{compressor.name}.*\(2, 1\).*{bad}"):
            compressor.encode(array)


@every_codec
def test_unbiased_codecs_are_right_on_average(compressor: Codec) -> None:
    array, seeds = normal((8, 5)), 2000
    if not compressor.unbiased:
        return
    decoded = np.array([compressor.decode(compressor.encode(array, seed)) for seed in range(seeds)])
    sigma = decoded.std(axis=0, ddof=1) / math.sqrt(seeds)
    assert (np.abs(decoded.mean(axis=0) - array) <= 5 * sigma + 1e-12).all()


def test_which_codecs_are_unbiased() -> None:
    unbiased = {spelling for spelling in SPELLINGS if codec(spelling).unbiased}
    assert unbiased == {"identity", "sparse-or-dense", "int8-stochastic", "random-k:0.3"}


@every_codec
def test_arrays_may_be_of_any_layout_and_type(compressor: Codec) -> None:
    array = np.round(4 * normal((30, 40)))
    whole = compressor.encode(np.ascontiguousarray(array.T)).to_bytes()
    assert compressor.encode(array.T).to_bytes() == whole
    assert compressor.encode(array.T.astype(np.float32)).to_bytes() == whole


@every_codec
def test_arrays_and_packets_share_no_memory(compressor: Codec) -> None:
    array = normal((40, 30))
    before = array.copy()
    packet = compressor.encode(array)
    sent, decoded = packet.to_bytes(), compressor.decode(packet)
    np.testing.assert_array_equal(array, before)
    array[:] = 7.0
    decoded[:] = 7.0
    assert packet.to_bytes() == sent


# -- packets


@every_codec
@every_shape
def test_packets_survive_the_wire(compressor: Codec, shape: tuple[int, ...]) -> None:
    packet = compressor.encode(normal(shape))
    sent = packet.to_bytes()
    assert len(sent) == packet.nbytes
    for received in (Packet.from_bytes(sent), Packet.from_bytes(memoryview(b"..." + sent)[3:])):
        assert_same_packet(packet, received)
        assert received.to_bytes() == sent
        np.testing.assert_array_equal(decode(received), compressor.decode(packet))


@every_codec
def test_damaged_packets_are_refused(compressor: Codec) -> None:
    sent = compressor.encode(normal((6, 4))).to_bytes()
    for end in range(len(sent)):
        with pytest.raises(ValueError, match="cut short"):
            Packet.from_bytes(sent[:end])
    with pytest.raises(ValueError, match="too long"):
        Packet.from_bytes(sent + b"\0")
    for place in range(len(sent)):
        garbled = bytearray(sent)
        garbled[place] ^= 0x10
        with pytest.raises(ValueError, match="packet"):
            Packet.from_bytes(garbled)


@pytest.mark.parametrize("data", [b"\x80\x04\x95 a pickle, not a packet", bytes(64), b"PAR1"])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a packet: it starts with"):
        Packet.from_bytes(data)


def test_numbers_and_arrays_come_back_with_their_types_and_bits() -> None:
    arrays = {kind: np.arange(5).astype(kind) for kind in ("f8", "u4", "u2", "u1", "i1")}
    numbers = {"whole": -(2**62), "denormal": 5e-324, "none": float("-inf"), "größe": 0.1}
    packet = Packet("anything", (2**40, 0), {**arrays, **numbers, "empty": np.empty(0)})
    assert_same_packet(packet, Packet.from_bytes(packet.to_bytes()))


def test_a_packet_of_another_codec_is_not_decoded() -> None:
    packet = codec("float16").encode(normal((3,)))
    with pytest.raises(ValueError, match="made by codec float16 and is decoded by bfloat16"):
        codec("bfloat16").decode(packet)


@every_codec
def test_parts_that_do_not_fit_the_shape_are_refused(compressor: Codec) -> None:
    packet = compressor.encode(normal((40, 30)))
    with pytest.raises(ValueError, match="do not fit its shape"):
        compressor.decode(Packet(packet.codec, (41, 31), {}))
    with pytest.raises(ValueError, match="do not fit its shape"):
        compressor.decode(Packet(packet.codec, (3, 2), packet.parts))


def test_compression_ratios() -> None:
    array = normal((1_000_000,))
    expected = {
        "1-bit": 50,
        "top-k:0.01": 20,
        "random-k:0.01": 20,
        "int8": 7.9,
        "int8-stochastic": 7.9,
        "float16": 3.99,
    }
    for spelling, ratio in expected.items():
        assert array.nbytes / codec(spelling).encode(array).nbytes >= ratio, spelling
    assert array.nbytes / codec("power-sgd:4").encode(array.reshape(1000, 1000)).nbytes >= 100


# -- single codecs


@pytest.mark.parametrize(("spelling", "kind"), [("float16", np.float16), ("bfloat16", None)])
def test_halves_round_to_nearest_even(spelling: str, kind) -> None:
    """Against numpy's float16; for bfloat16 against the two float32 neighbours of 16 zero bits."""
    rng = np.random.default_rng(3)
    array = rng.choice([-1.0, 1.0], 20_000) * 2.0 ** rng.uniform(-30, 15.9, 20_000)
    array[:1000] = np.arange(1000) * 2.0**-26  # subnormal float16 and ties among them
    array[1000:3000] = 1 + np.arange(2000) * 2.0**-13  # ties
    decoded = codec(spelling).decode(codec(spelling).encode(array))
    if kind is not None:
        expected = array.astype(kind).astype(np.float64)
    else:
        bits = np.abs(array).astype(np.float32).view(np.uint32).astype(np.int64) >> 16
        candidates = np.stack(
            [((bits + k) << 16).astype(np.uint32).view(np.float32).astype(np.float64) for k in (-1, 0, 1, 2)]
        )
        odd = np.stack([(bits + k) & 1 for k in (-1, 0, 1, 2)])
        distance = np.abs(candidates - np.abs(array))
        distance[np.abs(candidates) == np.inf] = np.inf
        nearest = np.lexsort((odd, distance), axis=0)[0]
        expected = np.copysign(np.take_along_axis(candidates, nearest[None], 0)[0], array)
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
    ("spelling", "largest", "smallest"),
    [("float16", 65504.0, 2.0**-24), ("bfloat16", float(np.finfo(np.float32).max) * (1 - 2**-8), 2.0**-133)],
)
def test_halves_saturate_and_flush(spelling: str, largest: float, smallest: float) -> None:
    array = np.array([largest, 1e300, -1e300, np.finfo(float).max, smallest, smallest / 2, smallest * 0.51, -5e-324])
    decoded = codec(spelling).decode(codec(spelling).encode(array))
    largest = decoded[0]
    np.testing.assert_array_equal(decoded, [largest, largest, -largest, largest, smallest, 0.0, smallest, -0.0])
    assert largest == pytest.approx(array[0], rel=2**-8)


def test_int8_keeps_the_largest_of_every_block_and_errs_by_half_a_step() -> None:
    array = normal((5000,)) * np.repeat([1.0, 1e6, 1e-6, 1.0, 1e200], 1000)
    decoded = codec("int8").decode(codec("int8").encode(array))
    for start in range(0, 5000, 1024):
        block, back = array[start : start + 1024], decoded[start : start + 1024]
        largest = np.abs(block).max()
        assert back[np.abs(block).argmax()] == block[np.abs(block).argmax()]
        assert np.abs(back - block).max() <= largest / 254 * (1 + 1e-12)


def test_one_bit_decodes_the_two_means() -> None:
    array = np.array([3.0, -1.0, 5.0, 0.0, -2.0])
    np.testing.assert_array_equal(codec("1-bit").decode(codec("1-bit").encode(array)), [4.0, -1.0, 4.0, -1.0, -1.0])


def test_threshold_skips_entries_below_tau_times_the_root_mean_square() -> None:
    array = np.array([3.0, -4.0, 0.5, 0.0, 1.0, -2.0])  # its root mean square is 2.24
    decoded = codec("threshold:0.8").decode(codec("threshold:0.8").encode(array))
    np.testing.assert_array_equal(decoded, [3.0, -4.0, 0.0, 0.0, 0.0, -2.0])


def test_top_k_keeps_the_largest_and_of_equals_the_first() -> None:
    array = np.array([1.0, -2.0, 0.0, 2.0, -2.0, 5.0, 0.5, 0.0, 2.0, 1.0])
    packet = codec("top-k:0.3").encode(array)
    np.testing.assert_array_equal(packet.parts["indices"], [1, 3, 5])
    np.testing.assert_array_equal(packet.parts["values"], [-2.0, 2.0, 5.0])
    big = normal((10_007,))
    kept = np.flatnonzero(codec("top-k:0.05").decode(codec("top-k:0.05").encode(big)))
    np.testing.assert_array_equal(kept, np.sort(np.argsort(-np.abs(big), kind="stable")[:500]))


def test_random_k_sends_its_share_in_ascending_places_scaled() -> None:
    array = normal((1000,))
    packet = codec("random-k:0.1").encode(array, seed=4)
    places = np.asarray(packet.parts["indices"]).astype(int)
    assert packet.parts["indices"].dtype == np.uint32  # type: ignore[union-attr]
    assert len(places) == 100
    assert (np.diff(places) > 0).all()
    np.testing.assert_allclose(decode(packet)[places], 10 * array[places], rtol=1e-15)


@pytest.mark.parametrize(("density", "sparse"), [(0.6, True), (0.7, False)])
def test_sparse_or_dense_takes_the_smaller_form(density: float, sparse: bool) -> None:
    array = normal((1000,))
    array[int(1000 * density) :] = 0.0
    packet = codec("sparse-or-dense").encode(array)
    assert ("indices" in packet.parts) == sparse
    assert packet.nbytes <= codec("identity").encode(array).nbytes + 100


@pytest.mark.parametrize("spelling", ["low-rank:3", "power-sgd:3"])
@pytest.mark.parametrize("scale", [1.0, 1e290, 1e-290])
def test_low_rank_is_exact_for_matrices_of_that_rank(spelling: str, scale: float) -> None:
    matrix = scale * (normal((50, 3), 1) @ normal((3, 40), 2))
    packet = codec(spelling).encode(matrix, seed=9)
    assert packet.nbytes < 8 * 3 * 90 + 200
    assert norm_ratio(decode(packet) - matrix, matrix) < 1e-13


def test_low_rank_is_the_best_of_its_rank_and_power_sgd_approaches_it_from_its_own_packets() -> None:
    matrix = normal((50, 3), 1) @ normal((3, 40), 2) + 0.3 * normal((50, 40), 3)
    best = math.sqrt((np.linalg.svd(matrix, compute_uv=False)[3:] ** 2).sum())
    assert np.linalg.norm(decode(codec("low-rank:3").encode(matrix)) - matrix) == pytest.approx(best)
    errors, packet = [], None
    for _ in range(8):
        packet = codec("power-sgd:3").encode(matrix, 0, packet)
        errors.append(np.linalg.norm(decode(packet) - matrix))
    assert errors[0] > 1.02 * best
    assert errors[-1] == pytest.approx(best, rel=1e-6)


def test_power_sgd_recovers_from_a_packet_of_zeros() -> None:
    matrix = normal((50, 2), 1) @ normal((2, 40), 2)
    nothing = codec("power-sgd:2").encode(np.zeros((50, 40)))
    again = codec("power-sgd:2").encode(matrix, 0, nothing)
    np.testing.assert_allclose(decode(again), matrix, atol=1e-12)


# -- error feedback


@every_codec
@pytest.mark.parametrize("shape", [(400,), (40, 10), (0,)], ids=str)
def test_feedback_conserves_the_running_sum(compressor: Codec, shape: tuple[int, ...]) -> None:
    feedback, memory = ErrorFeedback(compressor), None
    given, received = np.zeros(shape), np.zeros(shape)
    for clock in range(50):
        array = normal(shape, clock)
        packet, memory = feedback.encode(array, memory, (0, clock))
        given += array
        received += feedback.decode(packet)
        np.testing.assert_allclose(received + memory.residual, given, atol=1e-10)


@every_codec
def test_feedback_makes_the_running_mean_converge(compressor: Codec) -> None:
    array, memory, received, errors = normal((40, 10)), None, 0.0, {}
    feedback, worst = ErrorFeedback(compressor), 0.0
    for rounds in range(1, 1601):
        sent = array + memory.residual if memory is not None else array
        worst = max(worst, feedback.codec.error_bound(sent))
        packet, memory = feedback.encode(array, memory, (0, rounds))
        received = received + feedback.decode(packet)
        errors[rounds] = norm_ratio(received / rounds - array, array)
    # ||residual|| <= worst (||residual|| + ||array||), and the mean is off by residual / rounds
    if worst < 1.0:
        assert errors[1600] <= worst / (1 - worst) / 1600 + 1e-12
    assert errors[1600] <= min(0.12, 0.25 * errors[200]) + 1e-12


def test_without_feedback_the_mean_of_biased_codecs_does_not_converge() -> None:
    array = normal((40, 10))
    for spelling in ("1-bit", "top-k:0.1", "low-rank:2"):
        assert norm_ratio(decode(codec(spelling).encode(array)) - array, array) > 0.3


@every_codec
def test_feedback_remembers_packets_only_where_they_help(compressor: Codec) -> None:
    feedback, array = ErrorFeedback(compressor), normal((40, 10))
    first, memory = feedback.encode(array, None)
    assert memory.previous is (first if compressor.warm_starts else None)
    second, _ = feedback.encode(array, memory)
    cold = feedback.codec.encode(array + memory.residual)
    assert (second.to_bytes() == cold.to_bytes()) == (not compressor.warm_starts)


def test_power_sgd_is_what_starts_from_its_packets() -> None:
    assert [spelling for spelling in SPELLINGS if codec(spelling).warm_starts] == ["power-sgd:2"]


@every_codec
def test_feedback_refuses_what_is_not_finite(compressor: Codec) -> None:
    with pytest.raises(ValueError, match=r"error feedback.*finite.*\(1,\).*nan"):
        ErrorFeedback(compressor).encode(np.array([1.0, np.nan]), None)


def test_feedback_refuses_a_memory_of_another_shape_and_a_sum_that_overflows() -> None:
    feedback = ErrorFeedback(codec("float16"))
    _, memory = feedback.encode(np.full(3, 1.7e308), None)
    with pytest.raises(ValueError, match=r"shape \(3,\), and this one has \(4,\)"):
        feedback.encode(np.zeros(4), memory)
    with pytest.raises(ValueError, match=r"earlier rounds lost must be finite"):
        feedback.encode(np.full(3, 1.7e308), memory)


# -- spellings


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_name_spells_its_codec(spelling: str) -> None:
    assert codec(spelling).name == spelling
    assert codec(codec(spelling).name) == codec(spelling)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("topk", r"unknown codec 'topk'; allowed are identity, .*top-k:SHARE.*low-rank:RANK"),
        ("", r"unknown codec ''"),
        ("top-k", r"codec 'top-k' must be spelled top-k:SHARE"),
        ("int8:4", r"codec 'int8:4' must be spelled int8$"),
        ("1-bit:", r"codec '1-bit:' must be spelled 1-bit$"),
        ("top-k:", r"must be spelled top-k:SHARE, and '' is no such number"),
        ("top-k:one", r"'one' is no such number"),
        ("low-rank:2.5", r"must be spelled low-rank:RANK, and '2.5' is no such number"),
        ("top-k:0", r"share of top-k must be above 0 and at most 1, and is 0.0"),
        ("top-k:1.5", r"share of top-k must be above 0 and at most 1, and is 1.5"),
        ("random-k:nan", r"share of random-k must be above 0 and at most 1, and is nan"),
        ("threshold:-1", r"tau of threshold must be above 0 and finite, and is -1"),
        ("threshold:inf", r"tau of threshold must be above 0 and finite, and is inf"),
        ("low-rank:0", r"rank of low-rank:0 must be at least 1, and is 0"),
    ],
)
def test_wrong_spellings_say_what_is_allowed(spelling: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec(spelling)
