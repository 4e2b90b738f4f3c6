"""The shape of the package: who may import whom, and what loads without Spark, pandas or a warning."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sparkdml"
FILES = sorted(PACKAGE.rglob("*.py"))

#: From the public face down; rooms on one line stand side by side. A file imports from its own room and from rooms
#: on lower lines.
ROOMS = [
    {"__init__"},
    {"compiling"},
    {"builder", "daemon"},
    {"classification", "regression", "custom"},
    {"linear", "factorization", "network"},
    {"function"},
    {"cooperating"},
    {"estimator"},
    {"fit", "model", "wide"},
    {"params", "persist", "saving"},
    {"cooperation"},
    {"placement"},
    {"server"},
    {"algorithms"},
    {"optim"},
    {"problem"},
    {"comm"},
    {"data"},
    {"losses", "penalties", "families"},
    {"resources"},
    {"report"},
    {"core"},
]
WITHOUT_SPARK = ["losses", "penalties", "families", "optim", "comm", "algorithms", "server"]

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def room_of(module: str) -> str:
    """``sparkdml.data.block`` -> ``data``; the package itself is ``__init__``."""
    return (module.split(".") + ["__init__"])[1]


def level(room: str) -> int:
    found = [number for number, rooms in enumerate(ROOMS) if room in rooms]
    assert found, f"'{room}' has no place in the order of imports; give it one here and in the documentation"
    return found[0]


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere, also within functions and for type checking."""
    package = ("sparkdml", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from sparkdml import persist` names a room, `from sparkdml.core import Stop` does not
            yield from (f"{module}.{alias.name}" if module == "sparkdml" else module for alias in node.names)


def test_there_are_files_to_look_at() -> None:
    assert len(FILES) > 20
    assert "sparkdml.data.dataset" in set(imported(PACKAGE / "placement" / "base.py"))
    assert "sparkdml.persist" in set(imported(PACKAGE / "classification" / "linear_svc.py"))


@every_file
def test_imports_go_downwards_only(path: Path) -> None:
    mine = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    wrong = [
        module
        for module in imported(path)
        if module.split(".")[0] == "sparkdml" and room_of(module) != mine and level(room_of(module)) <= level(mine)
    ]
    assert not wrong, f"{mine} imports from rooms beside or above it: {wrong}"


@every_file
def test_kernels_losses_and_algorithms_never_name_spark(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    spark = [module for module in imported(path) if module.split(".")[0] in ("pyspark", "py4j")]
    assert not (room in WITHOUT_SPARK and spark)


@every_file
def test_nothing_is_printed(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


@every_file
def test_no_module_is_a_drawer_for_leftovers(path: Path) -> None:
    parts = [part.removesuffix(".py").strip("_") for part in path.relative_to(PACKAGE).parts]
    assert not {"util", "utils", "helper", "helpers", "misc", "common"} & set(parts)


def run_python(code: str, *options: str) -> str:
    """The standard output of a fresh interpreter, which must not fail."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *options, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("room", [room for room in WITHOUT_SPARK if (PACKAGE / room).is_dir()])
def test_kernels_losses_and_algorithms_load_without_spark(room: str) -> None:
    files = [path for path in (PACKAGE / room).rglob("*.py") if path.stem != "__init__"]
    modules = ", ".join(".".join(("sparkdml", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in files)
    loaded = run_python(f"import sys, {modules}; print('pyspark' in sys.modules, 'py4j' in sys.modules)")
    assert loaded.split() == ["False", "False"]


def test_the_package_itself_loads_neither_spark_nor_numpy() -> None:
    loaded = run_python("import sys, sparkdml; print([m for m in ('pyspark', 'numpy') if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_the_public_face_loads_without_a_warning() -> None:
    assert run_python("import sparkdml.classification", "-W", "error") == ""


def test_everything_loads_where_pandas_cannot_be_imported() -> None:
    modules = [
        ".".join(("sparkdml", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for path in FILES
    ]
    code = f"""
import importlib, sys
sys.modules["pandas"] = None
try:
    import pandas
except ImportError:
    print("hidden")
for name in {modules!r}:
    importlib.import_module(name)
"""
    assert run_python(code).strip() == "hidden"


def test_importing_the_public_face_starts_no_jvm() -> None:
    code = """
import sparkdml.classification
from pyspark import SparkContext
print(SparkContext._gateway, SparkContext._active_spark_context)
"""
    assert run_python(code).split() == ["None", "None"]
