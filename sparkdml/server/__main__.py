"""``sparkdml-server serve`` and ``sparkdml-server status ADDRESS``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkdml.server.clocks import Ledger
from sparkdml.server.serving import Server, Settings
from sparkdml.server.shard import Room
from sparkdml.server.wire import Security, ServerError, connect

TOKEN = "SPARKDML_SERVER_TOKEN"
#: How often a child looks whether its parent is still its parent.
_SECONDS = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        return _serve(options) if options.command == "serve" else _status(options)
    except (ServerError, ValueError, OSError) as error:
        sys.stderr.write(f"sparkdml-server: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sparkdml-server", description="A parameter server of sparkdml.")
    commands = parser.add_subparsers(dest="command", required=True)
    safety = argparse.ArgumentParser(add_help=False)
    safety.add_argument("--token-file", help=f"file with 64 hexadecimal digits; else ${TOKEN}")
    safety.add_argument("--certificate", default="", help="PEM file of this side")
    safety.add_argument("--key", default="", help="PEM file of its key")
    safety.add_argument("--authority", default="", help="PEM file of who signed the other side's certificate")
    serve = commands.add_parser("serve", parents=[safety], help="run one shard until told to end")
    serve.add_argument("--host", default="127.0.0.1", help="where to listen; other machines reach loopback never")
    serve.add_argument("--port", type=int, default=0, help="0 for a free one")
    serve.add_argument("--metrics-port", type=int, help="answer GET /metrics there; 0 for a free one")
    serve.add_argument("--workers", type=int, default=1)
    serve.add_argument("--staleness", type=int, default=-1, help="0 BSP, n SSP, -1 ASP")
    serve.add_argument("--backup-workers", type=int, default=0)
    serve.add_argument("--groups", type=json.loads, help="JSON lists of workers whose rounds are common")
    serve.add_argument("--table-bytes", type=int, default=Room().tables, help="default: half of the memory")
    serve.add_argument("--snapshots", default="", help="directory of snapshots")
    serve.add_argument("--restore", default="", help="name of the snapshot to begin with")
    serve.add_argument("--backup-of", default="", help="address of the primary whose backup this is")
    serve.add_argument("--child", action="store_true", help="take the token from standard input, and end with it")
    status = commands.add_parser("status", parents=[safety], help="tell what a server has and did")
    status.add_argument("address")
    return parser


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    told: dict[str, Any] = json.loads(sys.stdin.readline()) if options.child else {}
    security, fresh = _security(options, told.get("token"))
    ledger = Ledger(options.workers, options.staleness, options.backup_workers, options.groups)
    settings = Settings(
        options.host,
        options.port,
        options.metrics_port,
        options.snapshots,
        options.restore,
        options.backup_of,
        room=Room(tables=options.table_bytes),
    )
    with Server(ledger, settings, security, over) as server:
        line = {"address": server.listening.address, "pid": os.getpid(), "metrics_port": server.metrics_port}
        sys.stdout.write(json.dumps({**line, "token": security.token.hex()} if fresh else line) + "\n")
        sys.stdout.flush()
        if options.child:
            threading.Thread(target=_until_parent_closes, args=(over,), daemon=True).start()
        while not over.wait(_SECONDS):
            # somebody else may hold the other end of our standard input
            if options.child and os.getppid() != told["parent"]:
                break
    return 0


def _until_parent_closes(over: threading.Event) -> None:
    # not by sys.stdin, whose lock would keep the interpreter from ending
    while os.read(0, 4096):
        pass
    over.set()


def _security(options: argparse.Namespace, token: str | None) -> tuple[Security, bool]:
    """And whether its token is a new one."""
    files = options.certificate, options.key, options.authority
    if options.token_file:
        token = Path(options.token_file).read_text().strip()
    token = token or os.environ.get(TOKEN)
    return (Security.fresh(*files), True) if token is None else (Security(bytes.fromhex(token), *files), False)


def _status(options: argparse.Namespace) -> int:
    security, fresh = _security(options, None)
    if fresh:
        raise ValueError(f"give the session's token by --token-file or ${TOKEN}")
    with connect(options.address, security, 10.0) as connection:
        answer, _ = connection.call("status", {})
    sys.stdout.write(json.dumps(answer, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
