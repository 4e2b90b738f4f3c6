"""How a fit gets GPUs: the table of docs/architecture.md, line by line."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from sparkdml.resources.gpus.decision import Application, Decision, Way, cluster_of, decide

STANDALONE = Application("spark://host:7077", (4, 3, 0), executor_gpus=2, executor_cores=8)
YARN = Application("yarn", (4, 3, 0), executor_gpus=2, executor_cores=8, script="/conf/gpu-discovery.sh")
K8S = replace(YARN, master="k8s://https://host:443", vendor="nvidia.com")
CLUSTER = Application("local-cluster[2,8,1024]", (4, 3, 0), executor_gpus=2, executor_cores=8)
LOCAL = Application("local[4]", (4, 3, 0))
CLUSTERS = pytest.mark.parametrize("app", [STANDALONE, YARN, K8S, CLUSTER], ids=lambda app: cluster_of(app.master))


@pytest.mark.parametrize(
    ("master", "cluster"),
    [
        ("local", "local"), ("local[*]", "local"), ("local[2,4]", "local"), ("local-cluster[1,1,1024]", "standalone"),
        ("spark://a:7077", "standalone"), ("yarn", "yarn"), ("k8s://https://a:443", "k8s"), ("mesos://a", "other"),
    ],
)  # fmt: skip
def test_the_master_names_the_cluster(master, cluster):
    assert cluster_of(master) == cluster


def refused(app: Application, gpus: float) -> str:
    found = decide(app, gpus)
    assert found.way is Way.REFUSED
    return found.reason


@CLUSTERS
@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_asked_for_where_no_gpu_is_wanted(app, dynamic):
    for amounts in product((0, 2), (0.0, 0.5)):
        set_so = replace(app, dynamic_allocation=dynamic, executor_gpus=amounts[0], task_gpus=amounts[1])
        assert decide(set_so, 0.0).way is Way.NONE


@pytest.mark.parametrize("gpus", [0.0, 1.0])
@pytest.mark.parametrize("executor_gpus", [0, 1])
def test_local_mode_with_an_amount_for_tasks_would_hang_whatever_is_asked(gpus, executor_gpus):
    reason = refused(replace(LOCAL, task_gpus=1.0, executor_gpus=executor_gpus), gpus)
    assert "spark.task.resource.gpu.amount=1" in reason
    assert "unset it" in reason


@pytest.mark.parametrize("executor_gpus", [0, 1])
def test_local_mode_has_no_gpus_though_spark_accepts_the_amount(executor_gpus):
    app = replace(LOCAL, executor_gpus=executor_gpus)
    assert "hands out no GPUs" in refused(app, 0.5)
    assert decide(app, 0.0).way is Way.NONE


def test_other_masters_are_refused():
    assert "mesos://a" in refused(Application("mesos://a", executor_gpus=1), 1.0)


@CLUSTERS
@pytest.mark.parametrize(("gpus", "tasks"), [(0.25, 8), (0.3, 6), (0.5, 4), (1.0, 2), (2.0, 1)])
def test_tasks_of_a_fit_ask_for_more_than_the_applications_do(app, gpus, tasks):
    found = decide(app, gpus)
    expected = Decision(Way.TASK_PROFILE, found.reason, gpus, 1)
    assert found == expected
    assert f"up to {tasks} workers an executor, which has 2 GPUs" in found.reason


@CLUSTERS
def test_cpus_limit_workers_as_well_as_gpus(app):
    found = decide(replace(app, task_cpus=3), 0.25)
    assert found.task_cpus == 3
    assert "up to 2 workers" in found.reason


@CLUSTERS
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_applications_settings_do_where_they_are_what_is_asked_for(app, dynamic):
    found = decide(replace(app, task_gpus=0.5, dynamic_allocation=dynamic), 0.5)
    assert found.way is Way.APPLICATION


@CLUSTERS
def test_the_applications_tasks_may_have_another_amount(app):
    assert decide(replace(app, task_gpus=1.0), 0.5).way is Way.TASK_PROFILE
    assert decide(replace(app, task_gpus=0.5), 2.0).way is Way.TASK_PROFILE


@CLUSTERS
def test_executors_without_gpus_are_refused_with_what_to_set(app):
    reason = refused(replace(app, executor_gpus=0), 1.5 + 0.5)
    assert "spark.executor.resource.gpu.amount=2" in reason
    assert ("discoveryScript" in reason) == (cluster_of(app.master) != "standalone")
    assert ("spark.executor.resource.gpu.vendor=nvidia.com" in reason) == (app is K8S)
    assert ("spark.worker.resource.gpu" in reason) == (cluster_of(app.master) == "standalone")


@CLUSTERS
def test_more_than_an_executor_has_is_refused_with_both_figures(app):
    reason = refused(app, 4.0)
    assert "gpusPerWorker=4" in reason
    assert "an executor has 2" in reason


@CLUSTERS
def test_a_task_of_more_cpus_than_an_executor_has_is_refused(app):
    reason = refused(replace(app, task_cpus=9), 1.0)
    assert "asks for 9 CPUs" in reason
    assert "an executor has 8" in reason


@pytest.mark.parametrize(
    ("app", "last_without", "first"),
    [(STANDALONE, (3, 3, 4), (3, 4, 0)), (YARN, (3, 5, 0), (3, 5, 1)), (K8S, (3, 5, 0), (3, 5, 1))],
)
def test_profiles_of_tasks_alone_came_with_certain_versions(app, last_without, first):
    assert decide(replace(app, version=first), 1.0).way is Way.TASK_PROFILE
    assert "spark.task.resource.gpu.amount=1" in refused(replace(app, version=last_without), 1.0)
    assert decide(replace(app, version=last_without, task_gpus=1.0), 1.0).way is Way.APPLICATION


@CLUSTERS
@pytest.mark.parametrize(
    ("there", "gpus", "executor_gpus"), [(2, 0.5, 2), (2, 1.0, 2), (2, 4.0, 4), (0, 0.5, 1), (0, 2.0, 2)]
)
def test_dynamic_allocation_starts_executors_of_the_fits_own(app, there, gpus, executor_gpus):
    found = decide(replace(app, dynamic_allocation=True, executor_gpus=there, task_cpus=2), gpus)
    assert found == Decision(Way.FULL_PROFILE, found.reason, gpus, 2, executor_gpus, 8)


@pytest.mark.parametrize(
    ("app", "missing"),
    [
        (replace(STANDALONE, executor_cores=None), ["spark.executor.cores"]),
        (replace(YARN, script=""), ["discoveryScript"]),
        (replace(K8S, script="", vendor=""), ["discoveryScript", "vendor"]),
        (replace(K8S, vendor=""), ["vendor"]),
    ],
)
def test_executors_of_its_own_must_be_told_in_full(app, missing):
    reason = refused(replace(app, dynamic_allocation=True), 1.0)
    for name in missing:
        assert name in reason


def test_old_versions_start_no_executors_for_a_stage():
    old = replace(STANDALONE, dynamic_allocation=True, version=(3, 3, 0))
    assert "spark.dynamicAllocation.enabled=false" in refused(old, 1.0)
