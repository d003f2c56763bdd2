"""File contents, addressed by their sha256, on disk. A blob appears whole or not at all."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from pathlib import Path


class Blobs:
    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "incoming").mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        return self.path(sha256).exists()

    def size(self, sha256: str) -> int:
        return self.path(sha256).stat().st_size

    def read(self, sha256: str) -> bytes:
        return self.path(sha256).read_bytes()

    def put(self, content: bytes) -> str:
        return self.put_pieces([content])[0]

    def put_pieces(self, pieces: Iterable[bytes], expected: str | None = None) -> tuple[str, int]:
        """Store the pieces as one blob; returns (sha256, size). ValueError when they are not the expected content."""
        partial = self.folder / "incoming" / uuid.uuid4().hex
        digest, size = hashlib.sha256(), 0
        try:
            with partial.open("wb") as file:
                for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
            sha256 = digest.hexdigest()
            if expected is not None and sha256 != expected:
                raise ValueError(f"content is {sha256}, not {expected}")
            target = self.path(sha256)
            target.parent.mkdir(exist_ok=True)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return sha256, size


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file at once: a reader, or a restart after a kill, sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    partial.write_bytes(content)
    partial.replace(path)
