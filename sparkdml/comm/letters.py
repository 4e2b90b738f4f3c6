"""Bytes of any length over a link, which otherwise knows the length of what comes."""

from __future__ import annotations

import numpy as np

from sparkdml.comm.links import Links


def send_bytes(links: Links, to: int, content: bytes) -> None:
    links.send(to, np.array([len(content)], np.int64))
    links.send(to, np.frombuffer(content, np.uint8))


def receive_bytes(links: Links, from_: int) -> bytes:
    """What :func:`send_bytes` sent; the peer, which has proved itself, decides how much memory that takes."""
    length = np.zeros(1, np.int64)
    links.receive(from_, length)
    content = np.empty(int(length[0]), np.uint8)
    links.receive(from_, content)
    return content.tobytes()
