"""From parameters to how a fit uses parameter servers."""

from __future__ import annotations

from typing import Any

from pyspark.ml.param import Params

from sparkdml import cooperation
from sparkdml.placement import Launch, Pace, Server, Sidecar
from sparkdml.server.stale import REVISION

#: Who runs parameter servers, and how many.
LAUNCH_PARAMS = (
    "numServers", "replicas", "serverLaunch", "serverAddresses", "serverTokenFile", "serverCertificate", "serverKey",
    "serverAuthority",
)  # fmt: skip
#: All that needs servers.
SERVER_PARAMS = (
    *LAUNCH_PARAMS, "staleness", "backupWorkers", "staleGradients", "workerGroups", "pushEvery", "pullEvery",
    "pipeline",
)  # fmt: skip


def sidecar_of(given: Params, keep_every: int) -> Sidecar:
    """How servers are to be used; ValueError for what does not go together.

    ``given`` has the parameters of cooperation. ``keep_every``: see :class:`~sparkdml.placement.Sidecar`.
    """
    value = given.getOrDefault
    return Sidecar(
        staleness=value("staleness"),
        shards=value("numServers"),
        backup_workers=value("backupWorkers"),
        replicas=value("replicas"),
        stale=value("staleGradients"),
        pace=Pace(value("pushEvery"), value("pullEvery"), value("pipeline")),
        groups=value("workerGroups"),
        launch=Launch(
            how=value("serverLaunch"),
            addresses=tuple(value("serverAddresses")),
            token_file=value("serverTokenFile"),
            certificate=value("serverCertificate"),
            key=value("serverKey"),
            authority=value("serverAuthority"),
        ),
        keep_every=keep_every,
    )


def check_servers(given: Params, placement: str) -> None:
    """Refuse parameters of servers without servers, and what servers cannot do."""
    if placement != Server.name:
        for name in SERVER_PARAMS:
            if given.hasParam(name) and given.isSet(name):
                raise ValueError(
                    f"{name} is of placement='{Server.name}', and placement is '{placement}'; set both, or none"
                )
        return
    if not given.hasParam("staleness") or _value(given, "solver") not in cooperation.SOLVERS:
        raise ValueError(
            f"placement='{Server.name}' drives what workers can do at their own pace, solver='sgd', 'easgd', "
            f"'admm' or 'svrg', not solver='{_value(given, 'solver')}'; set that, or use another placement"
        )
    if _value(given, "staleGradients") == REVISION and _value(given, "optimizer") != "adagrad":
        raise ValueError(
            f"staleGradients='{REVISION}' revises the steps of optimizer='adagrad', not of "
            f"'{_value(given, 'optimizer')}'; set one of them otherwise"
        )


def _value(given: Params, name: str) -> Any:
    """The value of the parameter ``name``; None if it has none."""
    return given.getOrDefault(name) if given.hasParam(name) and given.isDefined(name) else None
