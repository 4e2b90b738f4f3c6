"""Where parameter servers run, and who reaches them."""

from __future__ import annotations

from pyspark.ml.param import Param, Params, TypeConverters


class HasServers(Params):
    """Parameters of ``placement='server'`` beside those of cooperation."""

    serverLaunch: Param[str] = Param(
        Params._dummy(),
        "serverLaunch",
        "who starts the servers under placement='server': local (the driver, beside itself), executors (Spark, in a "
        "slot each) or external (somebody else, as sparkdml-server serve)",
        typeConverter=TypeConverters.toString,
    )
    serverAddresses: Param[list[str]] = Param(
        Params._dummy(),
        "serverAddresses",
        "host:port of each external server",
        typeConverter=TypeConverters.toListString,
    )
    serverTokenFile: Param[str] = Param(
        Params._dummy(),
        "serverTokenFile",
        "a file of the driver with the token of external servers, 64 hexadecimal digits",
        typeConverter=TypeConverters.toString,
    )
    serverCertificate: Param[str] = Param(
        Params._dummy(),
        "serverCertificate",
        "PEM file, on all hosts, of the certificate that servers and their clients show (TLS)",
        typeConverter=TypeConverters.toString,
    )
    serverKey: Param[str] = Param(
        Params._dummy(),
        "serverKey",
        "PEM file of the key of serverCertificate",
        typeConverter=TypeConverters.toString,
    )
    serverAuthority: Param[str] = Param(
        Params._dummy(),
        "serverAuthority",
        "PEM file of the authority that signed the certificates of servers and clients",
        typeConverter=TypeConverters.toString,
    )
    workerGroups: Param[str] = Param(
        Params._dummy(),
        "workerGroups",
        "which workers step together under placement='server' with staleness=0: one (all of them), or by-speed (those "
        "of like speed, measured in the first passes, without waiting for other groups)",
        typeConverter=TypeConverters.toString,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            serverLaunch="local",
            serverAddresses=[],
            serverTokenFile="",
            serverCertificate="",
            serverKey="",
            serverAuthority="",
            workerGroups="one",
        )
