"""The blocks that this worker process has mapped, kept from round to round."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sparkdml.data.block import Block
from sparkdml.data.handle import Handle
from sparkdml.data.store import open_block

_open: dict[str, tuple[Handle, list[Block]]] = {}


class MissingBlocksError(FileNotFoundError):
    """A partition's files are not (all) here: they have to be built again."""


def open_handle(handle: Handle) -> Sequence[Block]:
    """Map the blocks of ``handle``, or find them mapped by an earlier round.

    Mapping anew costs a page fault for every few kilobytes, which is as long as computing on them.
    """
    key = f"{handle.dataset}/{handle.partition}"
    known = _open.get(key)
    if known is not None and known[0] == handle and _all_there(handle):
        return known[1]
    forget_removed()
    try:
        blocks = [open_block(block) for block in handle.blocks]
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise MissingBlocksError(str(error)) from error
    _open[key] = (handle, blocks)
    return blocks


def _all_there(handle: Handle) -> bool:
    try:
        return all(os.stat(block.path).st_size == block.size for block in handle.blocks)
    except OSError:
        return False


def forget_removed() -> None:
    """Unmap blocks whose files are gone, so that the disk gets their space back."""
    for key, (handle, _) in list(_open.items()):
        if not _all_there(handle):
            _open.pop(key, None)
