"""How workers cooperate."""

from __future__ import annotations

from typing import Any

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasSeed, HasStepSize

from sparkdml.params.servers import HasServers


class HasCooperation(HasServers, HasSeed, HasStepSize):
    """Parameters of solvers in which workers take steps of their own, and of what is sent between them."""

    optimizer: Param[str] = Param(
        Params._dummy(),
        "optimizer",
        "what a step is: sgd, momentum, nesterov, adagrad, adadelta, rmsprop, adam, adamw, ftrl; or, on workers' own "
        "rows, svrg, sag, saga",
        typeConverter=TypeConverters.toString,
    )
    schedule: Param[str] = Param(
        Params._dummy(),
        "schedule",
        "how stepSize changes with passes over the rows: constant, inverse, inverse-square-root or cosine; a warm-up "
        "of some passes may come first, as in warm-up:2+cosine",
        typeConverter=TypeConverters.toString,
    )
    batchSize: Param[int] = Param(
        Params._dummy(),
        "batchSize",
        "rows of one step on a worker's own rows",
        typeConverter=TypeConverters.toInt,
    )
    miniBatchFraction: Param[float] = Param(
        Params._dummy(),
        "miniBatchFraction",
        "share of all rows in one round of synchronous mini-batch descent (solver='sgd')",
        typeConverter=TypeConverters.toFloat,
    )
    localSteps: Param[Any] = Param(
        Params._dummy(),
        "localSteps",
        "steps that workers take alone between two rounds: a number, 'pass' (one pass over their rows), 'growing' "
        "(half as many again each round), or 'auto' (as many as make computing take as long as communicating)",
        typeConverter=lambda value: _local_steps(value),
    )
    blockMomentum: Param[float] = Param(
        Params._dummy(),
        "blockMomentum",
        "share of its last step that solver='bmuf' keeps; -1 stands for 1 - 1/workers",
        typeConverter=TypeConverters.toFloat,
    )
    elasticity: Param[float] = Param(
        Params._dummy(),
        "elasticity",
        "how strongly workers are drawn to their centre under solver='easgd': beta, all workers together",
        typeConverter=TypeConverters.toFloat,
    )
    conflicts: Param[str] = Param(
        Params._dummy(),
        "conflicts",
        "what becomes of rows that share features under solver='hogwild': ignored (threads write at the same time), or "
        "avoided (of batchSize rows, those that share features go to one thread: the same model for any number)",
        typeConverter=TypeConverters.toString,
    )
    codec: Param[str] = Param(
        Params._dummy(),
        "codec",
        "what workers send instead of float64 numbers: identity, float16, bfloat16, int8, 1-bit, threshold:TAU, "
        "top-k:SHARE, random-k:SHARE, low-rank:RANK, power-sgd:RANK, sparse-or-dense",
        typeConverter=TypeConverters.toString,
    )
    topology: Param[str] = Param(
        Params._dummy(),
        "topology",
        "who talks with whom under placement='allreduce': auto, ring, tree, halving-doubling, gossip",
        typeConverter=TypeConverters.toString,
    )
    split: Param[str] = Param(
        Params._dummy(),
        "split",
        "which worker gets which rows: given (as they come), shuffled, with-replacement, stratified (by label)",
        typeConverter=TypeConverters.toString,
    )

    staleness: Param[int] = Param(
        Params._dummy(),
        "staleness",
        "how many clocks workers may be apart under placement='server': 0 (they step together), n, or -1 (no bound)",
        typeConverter=TypeConverters.toInt,
    )
    numServers: Param[int] = Param(
        Params._dummy(),
        "numServers",
        "processes that hold the parameters under placement='server', a range of them each",
        typeConverter=TypeConverters.toInt,
    )
    backupWorkers: Param[int] = Param(
        Params._dummy(),
        "backupWorkers",
        "how many of the slowest workers each round does without, under placement='server' with staleness=0",
        typeConverter=TypeConverters.toInt,
    )

    replicas: Param[int] = Param(
        Params._dummy(),
        "replicas",
        "backups of each server under placement='server', 0 or 1: with one, a fit outlives the end of a server",
        typeConverter=TypeConverters.toInt,
    )
    staleGradients: Param[str] = Param(
        Params._dummy(),
        "staleGradients",
        "what servers do about gradients at points that others have moved on from, where staleness is not 0: "
        "as-it-comes, compensated:LAMBDA, adaptively-compensated:LAMBDA (DC-ASGD), adadelay or adaptive-revision",
        typeConverter=TypeConverters.toString,
    )
    pushEvery: Param[int] = Param(
        Params._dummy(),
        "pushEvery",
        "local steps that a worker takes before it pushes their gradients, under placement='server' with solver='sgd'",
        typeConverter=TypeConverters.toInt,
    )
    pullEvery: Param[int] = Param(
        Params._dummy(),
        "pullEvery",
        "local steps that a worker takes before it takes over the servers' parameters: pushEvery, or with staleness=-1 "
        "a multiple of it",
        typeConverter=TypeConverters.toInt,
    )

    pipeline: Param[bool] = Param(
        Params._dummy(),
        "pipeline",
        "whether workers pull and push while they compute, under placement='server' with solver='sgd': gradients are "
        "at parameters a clock older then",
        typeConverter=TypeConverters.toBoolean,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            optimizer="adagrad",
            stepSize=0.1,
            schedule="constant",
            batchSize=64,
            miniBatchFraction=0.01,
            localSteps="pass",
            blockMomentum=-1.0,
            elasticity=0.9,
            conflicts="ignored",
            codec="identity",
            topology="auto",
            split="given",
            staleness=0,
            numServers=1,
            backupWorkers=0,
            replicas=0,
            staleGradients="as-it-comes",
            pushEvery=1,
            pullEvery=1,
            pipeline=False,
            seed=0,
        )


def _local_steps(value: Any) -> int | str:
    if value in ("pass", "growing", "auto"):
        return str(value)
    steps = TypeConverters.toInt(value)
    if steps < 1:
        raise ValueError(f"localSteps={value!r} is not allowed; it can be 1 or more, pass, growing or auto")
    return steps
