"""Write the sample data of ``data/``: the handwritten digits that come with scikit-learn."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from config import setting
from console import run_locally, table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Config:
    """Where the two files go, and how the rows are split."""

    folder: str = setting("where the files are written", default="data")
    test_fraction: float = setting("the share of each class that is for testing", default=0.2)
    seed: int = setting("of the split", default=0)


def run(config: Config) -> None:
    """Write ``digits_train.parquet`` and ``digits_test.parquet``, and print their checksums."""
    import pyarrow.parquet as pq
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    split = train_test_split(
        np.arange(len(labels)),
        test_size=config.test_fraction,
        random_state=config.seed,
        stratify=labels,
    )
    rows = []
    for name, chosen in zip(("train", "test"), split, strict=True):
        path = Path(config.folder) / f"digits_{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several row groups, so that readers can share a file among tasks.
        pq.write_table(digits(pixels[chosen], labels[chosen]), path, row_group_size=360)
        rows.append([str(path), str(len(chosen)), hashlib.sha256(path.read_bytes()).hexdigest()])
    print(table([["file", "rows", "sha256"], *rows]))


def digits(pixels: np.ndarray, labels: np.ndarray) -> pa.Table:
    """The columns ``label`` (int32) and ``pixels`` (a list of 64 float32, from 0 to 16)."""
    import pyarrow as pa

    flat = pa.array(pixels.astype(np.float32).ravel())
    ends = pa.array(np.arange(len(pixels) + 1, dtype=np.int32) * pixels.shape[1])
    return pa.table(
        {
            "label": pa.array(labels.astype(np.int32)),
            "pixels": pa.ListArray.from_arrays(ends, flat),
        }
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    return run_locally(Config, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
