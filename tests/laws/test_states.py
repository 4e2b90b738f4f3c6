"""Every state of every algorithm survives as bytes, and reading bytes runs nothing that is not ours."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import ALGORITHMS, BLOCK_FORMATS
from hypothesis import given
from hypothesis import strategies as st
from problems import drive, make_problem

from sparkdml.algorithms import IRLS, LBFGS, Algorithm, Newton, NormalEquations, Problem, ProjectedLBFGS
from sparkdml.algorithms.quasi_newton import Pair
from sparkdml.algorithms.states import pack, unpack
from sparkdml.core import Stop, Turn
from sparkdml.families import family_and_link
from sparkdml.losses import Logistic, Loss, Softmax, Squared
from sparkdml.penalties import ElasticNet
from sparkdml.report.history import Round


def labels(kind: str, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    scores = X[:, 0] + rng.standard_normal(len(X))
    if kind == "binary":
        return (scores > 0).astype(float)
    if kind == "classes":
        return np.digitize(scores, [-0.5, 0.5]).astype(float)
    return rng.poisson(np.exp(0.3 * scores)).astype(float)


def within(problem: Problem) -> Algorithm:
    bound = np.full(problem.size, 0.2)
    return ProjectedLBFGS(25, 1e-9, -bound, bound)


Case = tuple[Loss, str, Callable[[Problem], Algorithm]]
CASES: dict[str, Case] = {
    **{
        f"{name}-{kind}": (loss, kind, lambda problem, make=make: make(25, 1e-9))
        for name, make in ALGORITHMS.items()
        for loss, kind in ((Logistic(), "binary"), (Softmax(3), "classes"))
    },
    "lbfgs-gram": (Logistic(), "binary", lambda problem: LBFGS(25, 1e-9, gram=True)),
    "newton": (Logistic(), "binary", lambda problem: Newton(25, 1e-9)),
    "projected": (Softmax(3), "classes", within),
    "irls": (Squared(), "counts", lambda problem: IRLS(25, 1e-9, family_and_link("poisson"), 0.01)),
    "normal": (Squared(), "counts", lambda problem: NormalEquations()),
    "no-iterations": (Logistic(), "binary", lambda problem: LBFGS(0, 1e-9)),
}


def states_of(case: Case, l1: float = 0.0) -> tuple[Problem, Algorithm, Any, list[Any]]:
    loss, kind, make = case
    rng = np.random.default_rng(11)
    X = rng.standard_normal((90, 4)) * np.array([0.1, 1.0, 10.0, 1.0]) + np.array([0.0, 1.0, -3.0, 0.0])
    X[:, 3] = 2.0  # constant: its scale is 0
    y, weights = labels(kind, X, rng), rng.uniform(0.1, 2.0, 90)
    problem = make_problem(loss, X, weights, 1e-3)
    if l1:
        factors = np.ones((4, 1))
        problem = dataclasses.replace(problem, penalty=ElasticNet(1e-3, factors, l1, factors))
    block = BLOCK_FORMATS["dense-float64"](X, y, weights)
    algorithm = make(problem)
    return problem, algorithm, block, drive(algorithm, problem, [[block]])


def assert_same_bits(found: Any, expected: Any) -> None:
    """The same types all the way down, and the same bits, those of NaN and of -0.0 too."""
    if dataclasses.is_dataclass(expected):
        assert type(found) is type(expected)
        for field in dataclasses.fields(expected):
            assert_same_bits(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same_bits(one, other)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same_bits(found[key], value)
    elif isinstance(expected, float):  # numpy's come back as Python's
        assert isinstance(found, float)
        assert np.float64(found).tobytes() == np.float64(expected).tobytes() or (
            found != found and expected != expected
        )
    else:
        assert type(found) is type(expected)
        assert found == expected


@pytest.mark.parametrize("l1", [0.0, 0.01], ids=["l2", "elastic-net"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_state_of_a_fit_keeps_all_its_bits(case: Case, l1: float) -> None:
    _, _, _, states = states_of(case, l1)
    assert states[-1].stop is not None
    for state in states:
        assert_same_bits(unpack(pack(state)), state)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_fit_that_is_read_back_after_every_round_ends_the_same(case: Case) -> None:
    problem, algorithm, block, straight = states_of(case)
    state = straight[0]
    for clock, expected in enumerate(straight[1:]):
        state = unpack(pack(state))
        total, _ = algorithm.work(problem, [block], state.coef, None, Turn(clock))
        state = algorithm.advance(problem, state, total)
        assert_same_bits(state, expected)


def test_what_a_checkpoint_holds_besides_the_state_comes_back_too() -> None:
    rounds = [Round(0, 0, 0.7, 1.0, 0.1, 0.0, 0.0, 8, 16), Round(1, 1, 0.1 + 0.2, math.inf, 1e-300, 0.0, 0.0, 2**40, 0)]
    content = {"format": 1, "identity": {"a": "1"}, "rounds": rounds, "nothing": None, "yes": True, "pair": (1, [2.5])}
    assert_same_bits(unpack(pack(content)), content)


floats = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(st.lists(floats, max_size=5), floats)
def test_numbers_of_every_size_keep_their_bits(values: list[float], rho: float) -> None:
    pair = Pair(np.array(values), -np.array(values), rho)
    assert_same_bits(unpack(pack(pair)), pair)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.arange(6.0).reshape(2, 3).T,
        np.array([True, False]),
        np.array(2.5),
        np.arange(3, dtype=np.int32),
        np.arange(4, dtype=np.float32)[::2],
    ],
    ids=["empty", "transposed", "bools", "scalar", "int32", "strided"],
)
def test_arrays_keep_shape_and_type(array: np.ndarray) -> None:
    assert_same_bits(unpack(pack(Pair(array, array, 1.0))).s, array)


def test_the_smallest_numbers_and_zeros_keep_sign_and_bits() -> None:
    for value in (5e-324, -0.0, 0.0, math.inf, -math.inf, 1.7976931348623157e308, 0.1):
        assert math.copysign(1.0, unpack(pack([value]))[0]) == math.copysign(1.0, value)
        assert unpack(pack([value])) == [value]


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", lambda: 0, 1j], ids=lambda v: type(v).__name__)
def test_what_has_no_form_on_disk_is_refused_when_written(value: object) -> None:
    with pytest.raises(TypeError, match=f"{type(value).__name__}, which cannot be written"):
        pack({"state": value})


def crafted(tree: Any, **arrays: np.ndarray) -> bytes:
    """A file as :func:`pack` writes it, of anything."""
    buffer = io.BytesIO()
    np.savez(buffer, tree=np.frombuffer(json.dumps(tree).encode(), np.uint8), **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "subprocess:Popen",
        "pathlib:Path",
        "dataclasses:dataclass",
        "sparkdml.core:add_updates",
        "sparkdml.core:np",
        "sparkdml.algorithms.base:Algorithm",
        "sparkdml.algorithms.nowhere:LBFGSState",
        "sparkdml.algorithms.lbfgs:Nothing",
        "sparkdml.data.handle:Handle",
        "",
    ],
)
def test_classes_that_are_not_ours_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="does not know"):
        unpack(crafted({"class": name, "fields": {}}))
    nested = {"class": "sparkdml.core:Stop", "fields": {"reason": {"class": name, "fields": {}}, "message": "m"}}
    with pytest.raises(ValueError, match="does not know"):
        unpack(crafted(nested))


def test_the_same_file_with_a_class_of_ours_is_read() -> None:
    tree = {"class": "sparkdml.core:Stop", "fields": {"reason": "converged", "message": "m"}}
    assert unpack(crafted(tree)) == Stop("converged", "m")


class Trap:
    """Says so if it is ever unpickled."""

    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))


def test_pickles_are_refused_and_never_run() -> None:
    arrays = np.empty(1, object)
    arrays[0] = Trap()
    within_a_file = crafted({"array": "array0"}, array0=arrays)
    with pytest.raises(ValueError, match="(?i)pickle"):
        unpack(within_a_file)
    with pytest.raises(ValueError, match="(?i)pickle"):
        unpack(pickle.dumps(Trap()))
    buffer = io.BytesIO()
    np.save(buffer, arrays, allow_pickle=True)
    with pytest.raises(ValueError, match="(?i)pickle"):
        unpack(buffer.getvalue())
    assert not Trap.sprung
    pickle.loads(pickle.dumps(Trap()))
    assert Trap.sprung, "the trap itself does not work"
    Trap.sprung = False
