"""What shards' tasks do: find their features, add up gradients, take the algorithm's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sparkdml.algorithms.sharded import as_stored, in_coordinates
from sparkdml.core import Update
from sparkdml.data.dataset import overflow
from sparkdml.data.ingest import Refusal
from sparkdml.data.routing import localised
from sparkdml.data.store import home_of, local_directories
from sparkdml.placement.partitioned.files import ShardFiles, added, open_kept
from sparkdml.placement.partitioned.layout import Layout, Missing, Place, ShardAnswer, Staying, Told
from sparkdml.placement.partitioned.mail import Mail, moments_of, site
from sparkdml.placement.ship import Shipped
from sparkdml.problem import Problem
from sparkdml.resources.worker import limit_threads, settle

Task = Callable[..., Iterator[Any]]
NOTHING: Mail = {}

_problems: dict[str, Problem] = {}


def founding(layout: Shipped, initial: Shipped) -> Task:
    """Find which features of a shard occur, and their deviations; begin, as generation 0.

    ``initial`` has a :class:`~sparkdml.algorithms.starts.Start`, or None.
    """

    def found(number: int, mail: Mail) -> ShardAnswer | Missing | Refusal:
        there: Layout = layout.value
        roots = local_directories()
        home = Path(home_of(roots[number % len(roots)], there.fit)) / f"shard-{number:05d}"
        files = ShardFiles(str(home))
        low, high = (int(bound) for bound in there.bounds[number : number + 2])
        columns, moments = [], []
        for worker in there.workers:
            told = mail[worker.number] if mail else moments_of(worker, there, number)
            if isinstance(told, Missing):
                return told
            columns.append(told[0])
            moments.append(told[1:])
        seen, places = localised(columns, high - low)
        mean, m2 = merged_moments(moments, places, [worker.weight for worker in there.workers], len(seen))
        if not np.isfinite(m2).all():
            wrong = int(np.argmin(np.isfinite(m2)))
            return Refusal("input", number, overflow(there.column, int(seen[wrong] + low), mean[wrong]))
        std = replace(there.totals, features=len(seen), mean=mean, m2=m2).std
        files.found(seen + low, mean, std, {w.number: p for w, p in zip(there.workers, places, strict=True)})
        place = Place(number, site(), str(home))
        problem = _problem(there, place)
        start = np.zeros(problem.size)
        if initial.value is not None:
            problem.split(start)[0][:] = initial.value.of(seen + low) * problem.scaling.std
        state, sums = there.algorithm.init(problem, start)
        return _leave(place, problem, state, 0, sums, published=True)

    return _over_shards(found)


def stepping(layout: Shipped, order: dict[str, Any], generation: int, message: Shipped | None, kept: Staying) -> Task:
    """From the state of ``generation`` to the next one; files of generations not ``kept`` (states, published) go."""

    def step(number: int, mail: Mail) -> ShardAnswer | Missing:
        there: Layout = layout.value
        place = there.shards[number]
        files = ShardFiles(place.directory)
        total: Update = {}
        try:
            problem = _problem(there, place)
            state = files.load(generation)
            if message is not None:
                told: Told = message.value
                gradient = _added_up(there, number, files, told, mail)
                if isinstance(gradient, Missing):
                    return gradient
                total = {"gradient": in_coordinates(problem, gradient, told.slope_sum)}
                if told.loss is not None:
                    total["loss"] = told.loss
        except FileNotFoundError as error:
            return Missing("shard", number, str(error))
        state, sums = there.algorithm.step(problem, state, order, total)
        answer = _leave(place, problem, state, generation + 1, sums, there.algorithm.moves(message is not None), files)
        files.keep(*kept)
        return answer

    return _over_shards(step)


def _added_up(layout: Layout, number: int, files: ShardFiles, told: Told, mail: Mail) -> np.ndarray | Missing:
    """All workers' gradients by the shard's coefficients, (n, K)."""
    columns = files.statics()["columns"]
    gradient = np.zeros((len(columns), layout.objective.loss.outputs))
    for worker in told.parcels:
        if worker.host != layout.shards[number].host:
            continue
        try:
            parcel = open_kept(layout.parcel(worker, told.clock))
        except FileNotFoundError as error:
            return Missing("parcel", worker.number, str(error))
        low, high = parcel["cuts"][number : number + 2]
        added(gradient, files.places(worker.number), parcel["gradient"][low:high])
    for sender in sorted(mail):
        if isinstance(mail[sender], Missing):
            return mail[sender]
        features, part = mail[sender]
        added(gradient, np.searchsorted(columns, features + layout.bounds[number]), part)
    return gradient


def checking(layout: Shipped, generation: int, published: int) -> Task:
    """Whether all of a generation is still there."""

    def check(number: int, mail: Mail) -> Missing | None:
        there: Layout = layout.value
        files = ShardFiles(there.shards[number].directory)
        try:
            files.statics()
            for worker in there.workers:
                files.places(worker.number)
            files.load(generation)
            files.published(published)
        except FileNotFoundError as error:
            return Missing("shard", number, str(error))
        return None

    return _over_shards(check)


def shifting(layout: Shipped, generation: int, answer: str) -> Task:
    """The answer's ``mean' coefficients``, (K,)."""

    def shift(number: int, mail: Mail) -> np.ndarray | Missing:
        there: Layout = layout.value
        try:
            problem = _problem(there, there.shards[number])
            state = ShardFiles(there.shards[number].directory).load(generation)
        except FileNotFoundError as error:
            return Missing("shard", number, str(error))
        return as_stored(problem, getattr(state, answer))[1]

    return _over_shards(shift)


def chunking(
    layout: Shipped, generation: int, answer: str, rows: int, finish: Callable[[np.ndarray], np.ndarray] | None
) -> Task:
    """The answer: pairs of features, int64 (n,), and their coefficients as stored, (n, K); rows of zeros left out."""

    def chunk(number: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        there: Layout = layout.value
        files = ShardFiles(there.shards[number].directory)
        try:
            problem = _problem(there, there.shards[number])
            coefficients, _ = as_stored(problem, getattr(files.load(generation), answer))
            columns = files.statics()["columns"]
        except FileNotFoundError:
            raise RuntimeError(
                f"coefficients of shard {number} are gone, with the executor or the cache that held them; save a model "
                "to keep it, or fit it again"
            ) from None
        for low in range(0, len(columns), rows):
            part = coefficients[low : low + rows]
            if finish is not None:
                part = finish(part)
            used = part.any(axis=1)
            if used.any():
                yield np.array(columns[low : low + rows][used]), part[used]

    def run(numbers: Iterable[int]) -> Iterator[Any]:
        for number in list(numbers):
            yield from chunk(number)

    return run


def merged_moments(
    parts: Sequence[tuple[np.ndarray, np.ndarray]], places: Sequence[np.ndarray], weights: Sequence[float], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and m2 of ``count`` features over all workers; part p is of ``places[p]``, where others are 0 throughout.

    A feature that is constant over all rows keeps an m2 of exactly 0 (Chan, Golub & LeVeque, 1983).
    """
    total = sum(weights)
    shift, seen, met = np.zeros(count), np.zeros(count), np.zeros(count, np.int64)
    for (mean, _), at, weight in zip(parts, places, weights, strict=True):
        shift[at] = np.where(met[at] == 0, mean, shift[at])
        met[at] += 1
        seen[at] += weight
    absent = np.where(met == len(parts), 0.0, np.maximum(total - seen, 0.0))
    offset = -absent * shift
    for (mean, _), at, weight in zip(parts, places, weights, strict=True):
        offset[at] += weight * (mean - shift[at])
    merged = shift + offset / total
    m2 = absent * merged * merged
    for (mean, square), at, weight in zip(parts, places, weights, strict=True):
        m2[at] += square + weight * (mean - merged[at]) ** 2
    return merged, m2


def _problem(layout: Layout, place: Place) -> Problem:
    """The shard's problem, kept by this process."""
    statics = ShardFiles(place.directory).statics()
    if place.directory not in _problems:
        for other in [other for other in _problems if not Path(other).exists()]:
            _problems.pop(other, None)
        _problems[place.directory] = layout.objective.shard(statics["mean"], statics["std"])
    return _problems[place.directory]


def _leave(
    place: Place,
    problem: Problem,
    state: Any,
    generation: int,
    sums: Update,
    published: bool,
    files: ShardFiles | None = None,
) -> ShardAnswer:
    """Write the state, and what workers see of it."""
    files = files or ShardFiles(place.directory)
    files.save(generation, state)
    shift = np.zeros(problem.loss.outputs)
    if published:
        coefficients, shift = as_stored(problem, state.coef)
        files.publish(generation, coefficients)
    return ShardAnswer(place, sums, shift, problem.size)


def _over_shards(action: Callable[[int, Mail], Any]) -> Task:
    def run(numbers: Iterable[int], mail: Mail = NOTHING) -> Iterator[Any]:
        limit_threads()
        for number in list(numbers):
            yield action(number, mail)
        settle()

    return run
