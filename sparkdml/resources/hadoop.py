"""Files and folders in any file system that Spark reaches through Hadoop."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark import SparkContext

#: A file that is not whole yet has this at the end of its name.
PART = ".part"


class HadoopPath:
    """One of them, there or not; ``path / name`` is what a folder has of that name."""

    def __init__(self, sc: SparkContext, path: str) -> None:
        self._sc, self._jvm = sc, _jvm_of(sc)
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)

    @cached_property
    def _system(self) -> Any:
        return self._path.getFileSystem(self._sc._jsc.hadoopConfiguration())

    def __str__(self) -> str:
        return str(self._path.toString())

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(self._sc, f"{self}/{name}")

    @property
    def name(self) -> str:
        return str(self._path.getName())

    def same(self, other: str) -> bool:
        """Whether ``other`` is this path, however it is written."""
        there = self._system.makeQualified(self._jvm.org.apache.hadoop.fs.Path(other))
        return bool(self._system.makeQualified(self._path).equals(there))

    def exists(self) -> bool:
        return bool(self._system.exists(self._path))

    def sizes(self) -> dict[str, int]:
        """What is in the folder by name, in bytes; nothing where there is no folder."""
        if not self.exists():
            return {}
        return {str(found.getPath().getName()): int(found.getLen()) for found in self._system.listStatus(self._path)}

    def read(self) -> bytes | None:
        """The file's content; None if it is not there."""
        if not self.exists():
            return None
        stream = self._system.open(self._path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, data: bytes) -> None:
        """Write the file whole or not at all, in place of the one that is there."""
        half = self._path.suffix(PART)
        self._create(half, data)
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._path.toUri() if self._path.toUri().getScheme() else self._system.getUri(), self._system.getConf()
        )
        overwrite = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite.getClass(), 1)
        options[0] = overwrite
        context.rename(half, self._path, options)

    def try_writing(self) -> str:
        """Why the file cannot be written, empty if it can; it is as it was, and its folder is made."""
        half = self._path.suffix(PART)
        try:
            self._create(half, b"")
            self._system.delete(half, False)
        except (Py4JJavaError, PySparkException) as error:
            return str(getattr(error, "java_exception", error))
        return ""

    def remove(self) -> None:
        """Remove the file, or the folder with all that is in it, if it is there."""
        self._system.delete(self._path, True)

    def remove_if_empty(self) -> None:
        """Remove the folder if nothing is in it."""
        if not self.sizes():
            self._system.delete(self._path, False)

    def _create(self, path: Any, data: bytes) -> None:
        stream = self._system.create(path, True)
        try:
            stream.write(data)
        finally:
            stream.close()


def parquet_sizes(folder: HadoopPath) -> list[int]:
    """Of the Parquet files in a folder, in bytes; none where there is no folder."""
    return [size for name, size in folder.sizes().items() if name.endswith(".parquet")]


def _jvm_of(sc: SparkContext) -> Any:
    jvm = sc._jvm
    assert jvm is not None
    return jvm
