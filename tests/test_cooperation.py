"""Estimators whose workers cooperate: every method, under every placement, with codecs, topologies and splits."""

from __future__ import annotations

import numpy as np
import pytest

from sparkdml import cooperation
from sparkdml.classification import LinearSVC, LogisticRegression, LogisticRegressionEnsembleModel
from sparkdml.data import from_dataframe
from sparkdml.placement import side_job
from sparkdml.regression import LinearRegression

#: How close each method comes to the optimum in a few passes over 600 rows: those of constant steps not very.
CLOSE = {
    "sgd": 2e-2,
    "model-averaging": 2e-3,
    "hogwild": 2e-2,
    "one-shot-averaging": 2e-2,
    "ensemble": 2e-2,
    "bmuf": 5e-3,
    "easgd": 5e-3,
    "admm": 1e-6,
    "cocoa": 1e-5,
    "svrg": 1e-6,
    "coordinate-descent": 5e-3,
    "newton-cg": 1e-8,
}
PLACEMENTS = ["local", *[pytest.param(name, marks=pytest.mark.slow) for name in ("broadcast", "allreduce")]]


def rows(classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((600, 6)) * np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0]) + 2.0
    scores = (X - 2.0) @ rng.standard_normal((6, classes))
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1).astype(float)
    return X, y


@pytest.fixture(scope="module")
def frame(make_frame):
    X, y = rows()
    made = make_frame(X, y).repartition(2).cache()
    yield made
    made.unpersist()


@pytest.fixture(scope="module")
def blocks(frame):
    with from_dataframe(frame) as dataset:
        yield dataset


def optimum(data, **params) -> float:
    return LogisticRegression(regParam=0.05, tol=1e-12, **params).fit(data).report.objective


def small_steps(solver: str) -> dict:
    """The solver, with batches that suit a few hundred rows where it has any."""
    if solver == "sgd":
        return {"solver": solver, "miniBatchFraction": 0.2, "optimizer": "momentum", "stepSize": 0.05}
    if solver == "hogwild":
        return {"solver": solver, "stepSize": 0.03}
    return (
        {"solver": solver, "batchSize": 16} if "batchSize" in cooperation.USES.get(solver, ()) else {"solver": solver}
    )


def test_every_method_is_tried() -> None:
    assert CLOSE.keys() == cooperation.SOLVERS.keys()


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("solver", CLOSE)
def test_methods_come_close_to_the_optimum(blocks, solver: str, placement: str) -> None:
    estimator = LogisticRegression(regParam=0.05, placement=placement, maxIter=40, **small_steps(solver))
    report = estimator.fit(blocks).report
    best = optimum(blocks)
    assert report.objective <= best * (1 + CLOSE[solver])
    assert report.objective >= best - 1e-10 or solver == "ensemble"  # whose objective has no penalty
    assert report.solver.startswith(solver)
    assert report.history[0].objective >= report.objective


@pytest.mark.parametrize("solver", ["sgd", "model-averaging", "hogwild", "admm", "svrg"])
def test_more_than_two_classes(make_frame, solver: str) -> None:
    X, y = rows(classes=3)
    with from_dataframe(make_frame(X, y, kind="sparse")) as dataset:
        best = optimum(dataset)
        found = LogisticRegression(regParam=0.05, maxIter=30, **small_steps(solver))
        assert found.fit(dataset).report.objective <= best * 1.02


@pytest.mark.parametrize("solver", ["admm", "cocoa", "svrg", "coordinate-descent", "newton-cg"])
def test_regression_whatever_the_labels_unit(make_frame, solver: str) -> None:
    X, _ = rows()
    y = 1e4 + 300.0 * (X @ np.arange(1.0, 7.0) + 20.0 * np.random.default_rng(1).standard_normal(len(X)))
    frame = make_frame(X, y)
    reference = LinearRegression(regParam=300.0, solver="l-bfgs", tol=1e-12).fit(frame)
    found = LinearRegression(regParam=300.0, solver=solver, maxIter=300, tol=1e-12).fit(frame)
    assert found.report.objective == pytest.approx(reference.report.objective, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(found.coefficients.toArray(), reference.coefficients.toArray(), rtol=1e-2)
    assert found.summary.rootMeanSquaredError == pytest.approx(reference.summary.rootMeanSquaredError, rel=1e-2)
    # step rules, too, are of the labels' own unit
    stepped = LinearRegression(regParam=300.0, solver="model-averaging", maxIter=40, batchSize=16).fit(frame)
    assert stepped.report.objective <= reference.report.objective * 1.05 + 1e-3


@pytest.mark.parametrize("solver", ["cocoa", "admm", "model-averaging", "hogwild"])
def test_support_vectors(blocks, solver: str) -> None:
    best = LinearSVC(regParam=0.1, tol=1e-10).fit(blocks).report.objective
    found = LinearSVC(regParam=0.1, maxIter=60, **small_steps(solver)).fit(blocks).report.objective
    assert best - 1e-6 <= found <= best * (1 + 5e-3)


@pytest.mark.parametrize("solver", ["admm", "coordinate-descent"])
def test_lasso_has_the_zeros_of_owlqn(blocks, solver: str) -> None:
    params = {"regParam": 0.1, "elasticNetParam": 1.0, "tol": 1e-10, "maxIter": 500}
    ours = LogisticRegression(solver=solver, **params).fit(blocks)
    reference = LogisticRegression(**params).fit(blocks)
    assert ours.report.objective == pytest.approx(reference.report.objective, rel=1e-6)
    zeros = reference.coefficients.toArray() == 0.0
    assert zeros.any()
    np.testing.assert_array_equal(ours.coefficients.toArray() == 0.0, zeros)


def test_without_conflicts_two_fits_by_several_threads_are_equal(make_frame) -> None:
    X, y = rows()
    X[np.random.default_rng(1).random(X.shape) < 0.8] = 0.0
    params = {"solver": "hogwild", "conflicts": "avoided", "batchSize": 32, "regParam": 0.01, "maxIter": 4}
    with from_dataframe(make_frame(X, y, kind="sparse")) as dataset:
        one, other = (LogisticRegression(elasticNetParam=0.5, **params).fit(dataset) for _ in range(2))
    assert one.report.placement.startswith("local: threads of one process share the coefficients")
    assert one.report.objective_history == other.report.objective_history
    np.testing.assert_array_equal(one.coefficients.toArray(), other.coefficients.toArray())
    assert one.report.objective < one.report.history[0].objective


@pytest.mark.parametrize("solver", ["sgd", "model-averaging"])
@pytest.mark.parametrize("codec", ["float16", "int8", "1-bit", "top-k:0.5", "power-sgd:1"])
def test_codecs_lose_nothing_for_good(blocks, solver: str, codec: str) -> None:
    params = {"regParam": 0.05, "maxIter": 40, "tol": 0.0, **small_steps(solver)}
    plain = LogisticRegression(**params).fit(blocks).report
    coded = LogisticRegression(codec=codec, **params).fit(blocks).report
    assert coded.objective == pytest.approx(plain.objective, rel=1e-2)


@pytest.mark.parametrize("placement", ["allreduce", "broadcast"])
def test_codecs_send_fewer_bytes(make_frame, placement: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 2000))
    y = (X[:, 0] > 0).astype(float)
    with from_dataframe(make_frame(X, y).repartition(2)) as dataset:
        sent = {}
        for codec in ("identity", "1-bit", "top-k:0.01"):
            estimator = LogisticRegression(
                regParam=0.1, solver="model-averaging", placement=placement, codec=codec, maxIter=5, tol=0.0
            )
            sent[codec] = estimator.fit(dataset).report.bytes["up"]
    assert sent["identity"] > 20 * sent["1-bit"]
    assert sent["identity"] > 20 * sent["top-k:0.01"]


@pytest.mark.parametrize("topology", ["ring", "tree", "halving-doubling"])
def test_topologies_give_one_answer(blocks, topology: str) -> None:
    def fit(topology: str):
        params = {"regParam": 0.05, "solver": "model-averaging", "maxIter": 5, "placement": "allreduce"}
        return LogisticRegression(topology=topology, **params).fit(blocks)

    np.testing.assert_allclose(fit(topology).coefficients.toArray(), fit("auto").coefficients.toArray(), rtol=1e-9)


def test_gossip_needs_no_global_exchange_and_ends_with_the_mean(blocks) -> None:
    estimator = LogisticRegression(
        regParam=0.05, solver="model-averaging", placement="allreduce", topology="gossip", maxIter=40, batchSize=16
    )
    model = estimator.fit(blocks)
    assert model.report.objective <= optimum(blocks) * 1.005
    # the objective told is that of the model returned
    X, y = rows()
    margins = X @ model.coefficients.toArray() + model.intercept
    scaled = model.coefficients.toArray() * X.std(axis=0, ddof=1)
    expected = np.mean(np.logaddexp(0.0, margins) - y * margins) + 0.025 * scaled @ scaled
    assert model.report.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_an_ensemble_averages_probabilities(spark, make_frame, tmp_path, classes: int) -> None:
    X, y = rows(classes)
    frame = make_frame(X, y)
    model = LogisticRegression(regParam=0.05, solver="ensemble", placement="broadcast", maxIter=10).fit(frame)
    assert isinstance(model, LogisticRegressionEnsembleModel)
    assert len(model.models) == 2
    assert sum(model.shares) == pytest.approx(1.0)
    expected = sum(
        share * np.array([row[0].toArray() for row in member.transform(frame).select("probability").collect()])
        for share, member in zip(model.shares, model.models, strict=True)
    )
    scored = model.transform(frame).select("label", "probability", "prediction").collect()
    np.testing.assert_allclose([row.probability.toArray() for row in scored], expected, rtol=1e-12)
    np.testing.assert_array_equal([row.prediction for row in scored], np.argmax(expected, axis=1))
    assert model.transform(frame).columns == [*frame.columns, "probability", "prediction"]
    # the objective told is the ensemble's own log loss, and no worse than its members'
    loss = -np.mean(np.log(expected[np.arange(len(y)), y.astype(int)]))
    assert model.report.objective == pytest.approx(loss, rel=1e-9)
    model.save(str(tmp_path / "ensemble"))
    again = LogisticRegressionEnsembleModel.load(str(tmp_path / "ensemble"))
    found = again.transform(frame).select("probability").collect()
    np.testing.assert_allclose([row[0].toArray() for row in found], expected, rtol=1e-12)


def test_intervals_may_grow_or_choose_themselves(blocks) -> None:
    for steps in (3, "growing", "auto"):
        params = {"regParam": 0.05, "solver": "model-averaging", "maxIter": 20, "batchSize": 16}
        report = LogisticRegression(localSteps=steps, **params).fit(blocks).report
        assert report.objective <= optimum(blocks) * 1.01
        assert report.compute_ratio > 0.0


@pytest.mark.parametrize("placement", ["local", "broadcast", "allreduce"])
def test_full_gradients_are_the_same_under_every_placement(blocks, placement: str) -> None:
    params = {"regParam": 0.05, "solver": "sgd", "optimizer": "nesterov", "miniBatchFraction": 1.0, "maxIter": 15}
    reference = LogisticRegression(placement="local", **params).fit(blocks).coefficients.toArray()
    found = LogisticRegression(placement=placement, **params).fit(blocks).coefficients.toArray()
    np.testing.assert_allclose(found, reference, rtol=1e-9)


def test_memories_of_separate_jobs_last_from_round_to_round_and_go_with_the_fit(blocks, datasets_on_disk) -> None:
    params = {"regParam": 0.05, "solver": "cocoa", "maxIter": 30, "tol": 1e-9}
    jobs = LogisticRegression(placement="broadcast", **params).fit(blocks).report
    gang = LogisticRegression(placement="allreduce", **params).fit(blocks).report
    assert jobs.objective_history == pytest.approx(gang.objective_history, rel=1e-9)
    assert not [path for home in datasets_on_disk() for path in home.rglob("memory-*")]


def test_memories_that_are_lost_cost_rounds_and_no_digit(blocks, local_dir) -> None:
    def lose(history) -> None:
        if len(history.rounds) == 4:
            lost = list(local_dir.rglob("memory-*"))
            assert lost
            for path in lost:
                path.unlink()

    params = {"regParam": 0.05, "maxIter": 60, "tol": 1e-9, "placement": "broadcast"}
    for solver in ("cocoa", "admm"):
        found = LogisticRegression(solver=solver, **params).setOnRound(lose).fit(blocks).report
        assert found.objective == pytest.approx(optimum(blocks), rel=1e-6)


@pytest.mark.parametrize("split", ["shuffled", "stratified", "with-replacement"])
def test_rows_may_be_split_before_they_are_read(frame, split: str) -> None:
    best = optimum(frame)
    found = optimum(frame, split=split)
    assert found == pytest.approx(best, rel=0.2 if split == "with-replacement" else 1e-9)
    assert (abs(found - best) > 1e-6) == (split == "with-replacement")


def test_a_model_saves_and_loads_whatever_trained_it(frame, tmp_path) -> None:
    estimator = LinearRegression(solver="svrg", regParam=0.1, codec="identity", localSteps=7, split="shuffled", seed=3)
    path = str(tmp_path / "estimator")
    estimator.save(path)
    loaded = LinearRegression.load(path)
    assert (loaded.getSolver(), loaded.getLocalSteps(), loaded.getSplit()) == ("svrg", 7, "shuffled")
    model = loaded.fit(frame)
    model.save(str(tmp_path / "model"))
    again = type(model).load(str(tmp_path / "model"))
    np.testing.assert_array_equal(again.coefficients.toArray(), model.coefficients.toArray())


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"solver": "adamw"}, "solver='adamw' is not known; it can be auto, l-bfgs, newton, sgd"),
        ({"solver": "sgd", "optimizer": "lion"}, "optimizer='lion' is not known"),
        ({"solver": "sgd", "optimizer": "saga"}, "optimizer='saga' works on a worker's own rows"),
        ({"solver": "sgd", "schedule": "linear"}, "schedule='linear' is not known"),
        ({"solver": "sgd", "schedule": "warm-up:0+cosine"}, "a warm-up schedule lasts more than 0 passes"),
        ({"solver": "sgd", "codec": "zip"}, "unknown codec 'zip'"),
        ({"solver": "admm", "codec": "1-bit"}, "codec='1-bit' may alter what is sent, and ADMM needs exact sums"),
        ({"codec": "1-bit"}, "needs a solver of steps, such as sgd"),
        ({"solver": "cocoa"}, "solver='cocoa' needs an L2 penalty"),
        ({"solver": "newton-cg", "regParam": 0.1, "elasticNetParam": 0.5}, "solver='newton-cg' takes no L1 penalty"),
        ({"solver": "sgd", "topology": "ring"}, "is for placement='allreduce', and placement is 'auto'"),
        ({"placement": "allreduce", "topology": "star"}, "topology='star' is not known"),
        ({"solver": "bmuf", "placement": "allreduce", "topology": "gossip"}, "use solver='model-averaging'"),
        ({"optimizer": "adam"}, "optimizer is set, but solver='auto' does not use it"),
        ({"solver": "admm", "stepSize": 0.1}, "stepSize is set, but solver='admm' does not use it"),
        ({"solver": "sgd", "localSteps": 5}, "localSteps is set, but solver='sgd' does not use it"),
        ({"solver": "bmuf", "elasticity": 0.5}, "use solver easgd"),
        ({"solver": "hogwild", "optimizer": "adam"}, "step by SGD or AdaGrad, not Adam"),
        ({"solver": "hogwild", "optimizer": "saga"}, "takes optimizer='sgd' or 'adagrad', not 'saga'"),
        ({"solver": "hogwild", "conflicts": "feared"}, "conflicts='feared' is not known; it can be ignored or avoided"),
        ({"solver": "hogwild", "batchSize": 64}, "unset it, or set conflicts='avoided'"),
        ({"solver": "hogwild", "codec": "1-bit"}, "codec='1-bit' may alter what is sent"),
        ({"solver": "sgd", "conflicts": "avoided"}, "conflicts is set, but solver='sgd' does not use it"),
        ({"solver": "easgd", "optimizer": "saga", "schedule": "cosine"}, "optimizer='saga' keeps its step size"),
        ({"solver": "svrg", "localSteps": "auto"}, "takes localSteps='pass' or a number, not 'auto'"),
        ({"solver": "model-averaging", "localSteps": 3, "placement": "allreduce", "topology": "gossip"}, "'pass'"),
        ({"placement": "allreduce", "topology": "gossip"}, "use solver='model-averaging' instead of 'auto'"),
        ({"split": "random"}, "split='random' is not known; it can be given, shuffled"),
        ({"solver": "sgd", "stepSize": -1.0}, "stepSize=-1.0 is not allowed"),
        ({"solver": "sgd", "miniBatchFraction": 1.5}, "miniBatchFraction=1.5 is not allowed"),
    ],
)
def test_what_does_not_go_together_is_said_before_any_job(frame, params, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        LogisticRegression(**params).fit(frame)


def test_parameters_are_checked_when_they_are_set() -> None:
    with pytest.raises((TypeError, ValueError), match="localSteps=0 is not allowed"):
        LogisticRegression(localSteps=0)
    with pytest.raises((TypeError, AttributeError), match="localStep"):
        LogisticRegression(localStep=3)


def test_steps_that_diverge_say_what_to_change(blocks) -> None:
    estimator = LogisticRegression(solver="sgd", optimizer="sgd", stepSize=1e9, miniBatchFraction=1.0)
    with pytest.raises(ValueError, match="use a smaller stepSize"):
        estimator.fit(blocks)


def test_steps_that_only_made_it_worse_are_not_called_converged(blocks) -> None:
    estimator = LogisticRegression(solver="sgd", optimizer="sgd", stepSize=40.0, miniBatchFraction=1.0, tol=1e-3)
    report = estimator.fit(blocks).report
    assert report.stop.reason == "stalled"
    assert "smaller stepSize" in report.stop.remedy


def test_held_back_rows_judge_new_points_only(make_frame) -> None:
    X, y = rows()
    frame = make_frame(X, y).selectExpr("*", "rand(3) < 0.3 as held")
    params = {"validationIndicatorCol": "held", "patience": 2, "regParam": 0.05, "maxIter": 40}
    for solver in ("cocoa", "ensemble", "svrg"):
        report = LogisticRegression(solver=solver, **params).fit(frame).report
        assert np.isfinite(report.objective)
        assert all(np.isfinite(report.objective_history))


def test_a_gang_that_gives_way_loses_no_memory(blocks, frame, monkeypatch) -> None:
    """A callback that starts a job ends the workers each time; what they remember must outlast them."""
    monkeypatch.setattr(side_job, "PATIENCE_SECONDS", 0.2)
    params = {"regParam": 0.05, "solver": "cocoa", "maxIter": 5, "tol": 0.0, "placement": "allreduce"}
    expected = LogisticRegression(**params).fit(blocks).report
    counted: list[int] = []

    def count(history) -> None:
        if len(history.rounds) in (2, 3):
            counted.append(frame.count())

    found = LogisticRegression(**params).setOnRound(count).fit(blocks).report
    assert counted == [600, 600]
    assert found.objective_history == pytest.approx(expected.objective_history, rel=1e-12)


def test_a_fit_within_a_callback_is_refused_where_it_would_wait_for_ever(blocks) -> None:
    def fit_too(history) -> None:
        LogisticRegression(placement="allreduce", regParam=0.05).fit(blocks)

    with pytest.raises(ValueError, match="a callback of a fit with placement='allreduce' starts another such fit"):
        LogisticRegression(placement="allreduce", regParam=0.05, solver="l-bfgs").setOnRound(fit_too).fit(blocks)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize(
    "params",
    [
        {"solver": "l-bfgs"},
        {"solver": "l-bfgs", "regParam": 1.0, "elasticNetParam": 0.5},
        {"loss": "huber"},
        {"solver": "normal"},
        {"solver": "admm"},
        {"solver": "newton-cg"},
        {"solver": "model-averaging"},
    ],
    ids=lambda params: "-".join(map(str, params.values())),
)
def test_the_unit_of_labels_changes_nothing_but_the_unit(make_frame, params: dict, unit: float) -> None:
    X, _ = rows()
    rng = np.random.default_rng(1)
    y = 3.0 + X @ np.arange(1.0, 7.0) + rng.standard_normal(len(X))
    # the penalty is in the labels' unit
    scaled = {**params, **({"regParam": params["regParam"] * unit} if "regParam" in params else {})}
    one = LinearRegression(**params).fit(make_frame(X, y))
    other = LinearRegression(**scaled).fit(make_frame(X, y * unit))
    # the model's own numbers, in the labels' unit
    np.testing.assert_allclose(other.coefficients.toArray() / unit, one.coefficients.toArray(), rtol=1e-5, atol=1e-9)
    assert other.intercept / unit == pytest.approx(one.intercept, rel=1e-5)
    if "loss" not in params:
        assert other.report.objective == pytest.approx(one.report.objective, rel=1e-6)


@pytest.mark.parametrize("solver", cooperation.SOLVERS)
def test_no_iterations_leave_the_model_where_it_starts(blocks, solver: str) -> None:
    estimator = LogisticRegression(regParam=0.05, maxIter=0, **small_steps(solver))
    if solver in cooperation.ALONE:
        with pytest.raises(ValueError, match="maxIter=0 leaves it none"):
            estimator.fit(blocks)
        return
    model = estimator.fit(blocks)
    assert not model.coefficients.toArray().any()
    assert (model.report.iterations, len(model.report.objective_history)) == (0, 1)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("solver", ["admm", "cocoa", "svrg", "coordinate-descent", "newton-cg"])
def test_workers_that_see_one_label_only_agree_all_the_same(make_frame, solver: str, placement: str) -> None:
    X, y = rows()
    order = np.argsort(y, kind="stable")
    with from_dataframe(make_frame(X[order], y[order])) as dataset:
        params = {"regParam": 0.05, "maxIter": 60, "placement": placement}
        report = LogisticRegression(**params, **small_steps(solver)).fit(dataset).report
        assert report.objective <= optimum(dataset) * (1 + CLOSE[solver])


#: Laws of methods hold whatever drives them, so beside ``local`` one of each kind: sums, threads, memories, members,
#: columns, products with the Hessian.
KINDS = ("sgd", "hogwild", "cocoa", "ensemble", "coordinate-descent", "newton-cg")


@pytest.mark.parametrize(
    ("solver", "placement"),
    [
        *((solver, "local") for solver in cooperation.SOLVERS),
        *(pytest.param(s, p, marks=pytest.mark.slow) for s in KINDS for p in ("broadcast", "allreduce")),
    ],
)
def test_empty_partitions_take_no_part(make_frame, solver: str, placement: str) -> None:
    X, y = rows()
    frame = make_frame(X, y, partitions=8).selectExpr("*", "monotonically_increasing_id() as id")
    last = frame.where(f"id >= {7 * 2**33}")
    report = LogisticRegression(regParam=0.05, maxIter=3, placement=placement, **small_steps(solver)).fit(last).report
    assert np.isfinite(report.objective)
