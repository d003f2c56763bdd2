"""File contents, addressed by their sha256."""

from __future__ import annotations

import hashlib


class Blobs:
    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}

    def has(self, sha256: str) -> bool:
        return sha256 in self._content

    def read(self, sha256: str) -> bytes:
        return self._content[sha256]

    def put(self, content: bytes, expected: str | None = None) -> str:
        """Store content; returns its sha256. ValueError when it is not the expected content."""
        sha256 = hashlib.sha256(content).hexdigest()
        if expected is not None and sha256 != expected:
            raise ValueError(f"content is {sha256}, not {expected}")
        self._content[sha256] = content
        return sha256
