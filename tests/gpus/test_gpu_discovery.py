"""conf/gpu-discovery.sh, with an nvidia-smi of our own on PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "conf" / "gpu-discovery.sh"
UUIDS = ["GPU-8f3c0000-0000-0000-0000-000000000000", "GPU-11110000-0000-0000-0000-000000000000"]


def discovered(tmp_path: Path, output: str | None, code: int = 0, **environment: str) -> list[str]:
    """The addresses that the script prints where nvidia-smi prints ``output``; None: there is none."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "awk", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    if output is not None:
        (tmp_path / "output").write_text(output)
        fake = tools / "nvidia-smi"
        wanted = "--query-gpu=index,uuid --format=csv,noheader"
        fake.write_text(f'#!/bin/sh\n[ "$*" = "{wanted}" ] || exit 9\ncat {tmp_path}/output\nexit {code}\n')
        fake.chmod(0o755)
    done = subprocess.run(
        [str(SCRIPT)], env={"PATH": str(tools), **environment}, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["name"] == "gpu"
    return list(found["addresses"])


def both() -> str:
    return "".join(f"{number}, {uuid}\n" for number, uuid in enumerate(UUIDS))


def test_every_gpu_is_told_by_its_number(tmp_path):
    assert discovered(tmp_path, both()) == ["0", "1"]


@pytest.mark.parametrize(
    ("output", "code"),
    [(None, 0), ("", 0), ("No devices were found\n", 6), ("NVIDIA-SMI has failed because ...\n", 9)],
)
def test_nothing_is_told_where_there_is_nothing(tmp_path, output, code):
    assert discovered(tmp_path, output, code) == []


@pytest.mark.parametrize(
    ("visible", "addresses"),
    [
        ("1", ["1"]), ("1,0", ["1", "0"]), ("", []), ("-1", []), ("1,7,0", ["1"]),
        (f"{UUIDS[1]},{UUIDS[0]}", [UUIDS[1], UUIDS[0]]), ("GPU-8f3c", ["GPU-8f3c"]), ("GPU-9", []),
    ],
)  # fmt: skip
def test_a_list_of_visible_devices_limits_it(tmp_path, visible, addresses):
    assert discovered(tmp_path, both(), CUDA_VISIBLE_DEVICES=visible) == addresses


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say():
    done = subprocess.run(["shellcheck", str(SCRIPT)], capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.stdout == ""
    assert done.returncode == 0
