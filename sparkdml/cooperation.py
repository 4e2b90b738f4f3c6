"""From parameters to a method by which workers cooperate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkdml.algorithms import (
    ADMM,
    BMUF,
    DSVRG,
    EASGD,
    Algorithm,
    CoCoA,
    Compressed,
    Ensemble,
    FeatureDescent,
    HogwildAveraging,
    Limits,
    ModelAveraging,
    NewtonCG,
    OneShotAveraging,
    SyncSGD,
)
from sparkdml.algorithms.hogwild import Passes
from sparkdml.algorithms.intervals import Auto, Fixed, Growing, Interval
from sparkdml.comm.codecs import codec
from sparkdml.optim.descent import Descent
from sparkdml.optim.hogwild import IGNORED, Hogwild
from sparkdml.optim.local_solver import LocalSolver
from sparkdml.optim.schedules import SCHEDULES, Constant, Cosine, Schedule, WarmUp
from sparkdml.optim.steps import STEPS
from sparkdml.optim.variance_reduction import SAG, SAGA, SVRG

#: Local optimizers that choose their own step size unless they are given one.
VARIANCE_REDUCED: dict[str, Callable[..., LocalSolver]] = {"svrg": SVRG, "sag": SAG, "saga": SAGA}
#: Step rules whose steps are as long as gradients are large.
PLAIN_STEPS = frozenset(("sgd", "momentum", "nesterov"))
EXACT = "identity"
#: Rows of a step unless they are set: of a step rule, and of those that reduce variance.
BATCH, REDUCED_BATCH = 64, 16
#: What a cosine schedule falls to.
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class Plan:
    """The values of :class:`~sparkdml.params.HasCooperation`'s parameters; ``step_size``, ``batch_size`` None: not set.

    ``unit`` is how large coefficients are: adaptive rules, whose steps do not depend on the gradient's scale, take
    steps in that unit.

    Building one raises ValueError for values that are not known, or do not go together.
    """

    solver: str
    limits: Limits
    optimizer: str
    step_size: float | None
    default_step_size: float
    schedule: str
    batch_size: int | None
    fraction: float
    local_steps: int | str
    block_momentum: float
    elasticity: float
    codec: str
    topology: str
    seed: int
    conflicts: str = IGNORED
    unit: float = 1.0

    def __post_init__(self) -> None:
        known = (*STEPS, *VARIANCE_REDUCED)
        if self.optimizer not in known:
            raise ValueError(f"optimizer='{self.optimizer}' is not known; it can be {', '.join(known)}")
        if self.solver == "sgd" and self.optimizer in VARIANCE_REDUCED:
            raise ValueError(
                f"optimizer='{self.optimizer}' works on a worker's own rows, and solver='sgd' steps on everyone's; use "
                f"solver='svrg' or 'model-averaging', or optimizer {', '.join(STEPS)}"
            )
        parse_schedule(self.schedule, 1)
        codec(self.codec)
        if self.topology == "gossip" and (self.solver != "model-averaging" or self.codec != EXACT):
            raise ValueError(
                f"topology='gossip' averages whole models among neighbours, which solver='{self.solver}' with "
                f"codec='{self.codec}' does not; use solver='model-averaging' and codec='identity'"
            )
        if self.topology == "gossip" and self.local_steps != "pass":
            raise ValueError(
                "topology='gossip' keeps workers in step without asking all of them, which localSteps="
                f"{self.local_steps!r} does not; use localSteps='pass'"
            )
        if self.solver in ALONE and self.limits.max_iterations < 1:
            raise ValueError(f"solver='{self.solver}' makes maxIter passes over the rows; maxIter=0 leaves it none")
        if self.solver == "svrg" and self.local_steps in ("growing", "auto"):
            raise ValueError(f"solver='svrg' takes localSteps='pass' or a number, not '{self.local_steps}'")

    def algorithm(self) -> Algorithm:
        """The method; ValueError where a codec may alter what it needs exact."""
        method = SOLVERS[self.solver](self)
        return method if self.codec == EXACT else Compressed(method, self.codec, self.seed)

    @property
    def _size(self) -> float:
        size = self.default_step_size if self.step_size is None else self.step_size
        return size if self.optimizer in PLAIN_STEPS else size * self.unit

    @property
    def _schedule(self) -> Schedule:
        return parse_schedule(self.schedule, self.limits.max_iterations)

    @property
    def _local(self) -> LocalSolver:
        if self.optimizer in VARIANCE_REDUCED:
            return VARIANCE_REDUCED[self.optimizer](self.step_size, self.batch_size or REDUCED_BATCH, self.seed)
        step, schedule = STEPS[self.optimizer](), self._schedule
        return Descent(step, self._size, schedule, batch_size=self.batch_size or BATCH, seed=self.seed)

    @property
    def _interval(self) -> Interval:
        if isinstance(self.local_steps, int):
            return Fixed(self.local_steps)
        return {"pass": Fixed, "growing": Growing, "auto": Auto}[self.local_steps]()

    def _sync_sgd(self) -> Algorithm:
        step, schedule = STEPS[self.optimizer](), self._schedule
        return SyncSGD(step, schedule, self._size, self.fraction, self.limits, self.seed)

    def _model_averaging(self) -> Algorithm:
        return ModelAveraging(self._local, self._interval, self.limits, absolute=self.codec == EXACT)

    def _one_shot(self) -> Algorithm:
        return OneShotAveraging(self._local, self.limits.max_iterations)

    def _ensemble(self) -> Algorithm:
        return Ensemble(self._local, self.limits.max_iterations)

    def _hogwild(self) -> Algorithm:
        if self.optimizer in VARIANCE_REDUCED:
            raise ValueError(f"solver='hogwild' takes optimizer='sgd' or 'adagrad', not '{self.optimizer}'")
        step, batch = STEPS[self.optimizer](), {} if self.batch_size is None else {"batch_size": self.batch_size}
        solver = Hogwild(step, self._size, self._schedule, self.conflicts, seed=self.seed, **batch)
        return HogwildAveraging(solver, Passes(self.limits.max_iterations), self.limits)

    def _bmuf(self) -> Algorithm:
        momentum = None if self.block_momentum < 0.0 else self.block_momentum
        return BMUF(self._local, self._interval, self.limits, absolute=self.codec == EXACT, momentum=momentum)

    def _easgd(self) -> Algorithm:
        return EASGD(self._local, self._interval, self.limits, beta=self.elasticity)

    def _admm(self) -> Algorithm:
        return ADMM(self.limits, unit=self.unit)

    def _cocoa(self) -> Algorithm:
        return CoCoA(self.limits, seed=self.seed)

    def _svrg(self) -> Algorithm:
        steps = self.local_steps if isinstance(self.local_steps, int) else 0
        return DSVRG(SVRG(self.step_size, self.batch_size or REDUCED_BATCH, self.seed), self.limits, steps)

    def _coordinate_descent(self) -> Algorithm:
        return FeatureDescent(self.limits, local_passes=5, seed=self.seed)  # converting to columns costs four

    def _newton_cg(self) -> Algorithm:
        return NewtonCG(self.limits.max_iterations, self.limits.tolerance)


#: Methods by the name that the ``solver`` parameter takes.
SOLVERS: dict[str, Callable[[Plan], Algorithm]] = {
    "sgd": Plan._sync_sgd,
    "model-averaging": Plan._model_averaging,
    "hogwild": Plan._hogwild,
    "one-shot-averaging": Plan._one_shot,
    "ensemble": Plan._ensemble,
    "bmuf": Plan._bmuf,
    "easgd": Plan._easgd,
    "admm": Plan._admm,
    "cocoa": Plan._cocoa,
    "svrg": Plan._svrg,
    "coordinate-descent": Plan._coordinate_descent,
    "newton-cg": Plan._newton_cg,
}
_STEPS = frozenset(("optimizer", "stepSize", "schedule", "batchSize"))
#: Which parameters a method uses, of those that only some use.
USES: dict[str, frozenset[str]] = {
    "sgd": frozenset(("optimizer", "stepSize", "schedule", "miniBatchFraction", "pushEvery", "pullEvery", "pipeline")),
    "model-averaging": _STEPS | {"localSteps"},
    "hogwild": _STEPS | {"conflicts"},
    "one-shot-averaging": _STEPS,
    "ensemble": _STEPS,
    "bmuf": _STEPS | {"localSteps", "blockMomentum"},
    "easgd": _STEPS | {"localSteps", "elasticity"},
    "svrg": frozenset(("stepSize", "batchSize", "localSteps")),
}
SOME_USE: frozenset[str] = frozenset().union(*USES.values())
#: Those whose workers train alone, once, for maxIter passes.
ALONE = frozenset(("one-shot-averaging", "ensemble"))
#: Those whose workers hold all rows and some of their columns.
BY_FEATURES = frozenset(("coordinate-descent",))
#: Those whose threads share one model, for which they must be threads of one process.
SHARED_MEMORY = frozenset(("hogwild",))
#: Those that take steps on single rows: they want rows as sparse as they are, and scaled only if that is asked for.
STEPPING = frozenset(SOLVERS) - {"admm", "newton-cg"}


def parse_schedule(text: str, passes: int) -> Schedule:
    """``cosine``, which falls over ``passes``, or ``warm-up:2+cosine``: two passes of warm-up before it."""
    first, plus, rest = text.partition("+")
    name, colon, length = first.partition(":")
    plain = [known for known in SCHEDULES if known != "warm-up"]
    try:
        if name == "warm-up" and colon:
            return WarmUp(float(length), parse_schedule(rest, passes) if plus else Constant())
        if text == "cosine":
            # not down to 0, where nothing would move any more
            return Cosine(max(passes, 1), LEAST_SHARE)
        if text in plain:
            return SCHEDULES[text]()
    except ValueError as error:
        raise ValueError(f"schedule='{text}': {error}") from None
    raise ValueError(f"schedule='{text}' is not known; it can be {', '.join(plain)}, each after warm-up:PASSES+")
