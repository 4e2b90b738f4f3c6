"""From a DataFrame to an RDD of handles on memory-mapped blocks.

``sparkdml.data.block`` and the kernels work without Spark, so the names that need it are loaded when asked for.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "Dataset": "sparkdml.data.dataset",
    "from_dataframe": "sparkdml.data.sources",
    "from_parquet": "sparkdml.data.sources",
}
__all__ = ["Dataset", "from_dataframe", "from_parquet"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
