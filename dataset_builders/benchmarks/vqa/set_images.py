"""Find the images that cells refer to, each distinct one once.

Embedded images go to a file on the disk, since all of a set do not fit in memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dataset_builders.benchmarks.gmai_mmbench.tsv import MAX_REFERENCE_LENGTH, decode_base64_image
from dataset_builders.benchmarks.vqa.keys import is_empty, parse_literal
from dataset_builders.errors import clip
from dataset_builders.images.lookup import ImageError, ImageFolders
from dataset_builders.schema import CaseImage

_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]+")


class SetImages:
    """The images of a set. Their ids are digests of their bytes, so they reveal no file name."""

    def __init__(self, folders: ImageFolders | None, spool_folder: Path) -> None:
        self.folders, self.spool_folder = folders, spool_folder
        self.by_digest: dict[str, CaseImage] = {}
        self.spool: Any = None

    def find(self, cell: Any, folder: Path | None, image: CaseImage) -> list[CaseImage | str]:
        """Return the images of a cell.

        Args:
            cell: encoded bytes, base64, a path, `{"bytes", "path"}` of `datasets`, or a list of
                these.
            folder: where paths begin; None on the Hub.
            image: licence, group and location of the images.

        Returns:
            Images, `read` None if a file is missing or images are not wanted; a text that is not
                the path of a file stands as it is: it may be the id of the row that has the image.

        Raises:
            ImageError: the image is a URL or not base64, or is another patient's elsewhere.
        """
        images: list[CaseImage | str] = []
        for part in self._parts(parse_literal(cell)):
            data = self._read(part, folder)
            if isinstance(data, str) and len(data) <= MAX_REFERENCE_LENGTH and "." not in data:
                images.append(data)
                continue
            file_name = re.split(r"[\\/]", data)[-1] if isinstance(data, str) else ""
            images.append(self._register(data, replace(image, name=file_name)))
        return images

    def _parts(self, cell: Any) -> Iterator[Any]:
        if isinstance(cell, list):
            yield from (part for value in cell for part in self._parts(value))
        elif isinstance(cell, dict):
            yield from self._parts(cell.get("bytes") or cell.get("path"))
        elif not is_empty(cell):
            yield cell.strip() if isinstance(cell, str) else cell

    def _read(self, part: Any, folder: Path | None) -> bytes | Path | str:
        """Return embedded bytes, the path of a file, or the text itself if there is no file."""
        if isinstance(part, bytes):
            return part
        if not isinstance(part, str):
            raise ImageError(f"the image is {clip(part)}; expected bytes, base64 or a path")
        if re.match(r"(?i)https?://", part):
            raise ImageError(
                f"the image is a URL ({clip(part)}): download the images, and name their folder with --images"
            )
        if part.startswith("data:") or (len(part) > MAX_REFERENCE_LENGTH and _BASE64.fullmatch(part)):
            return decode_base64_image(part)
        roots = [*([folder] if folder else []), *(self.folders.folders if self.folders else [])]
        for root in roots:
            # Absolute paths and `..` may name what is in the source, nothing else.
            if (root / part).is_file() and (root / part).resolve().is_relative_to(root.resolve()):
                return root / part
        return (self.folders.find([part]) if self.folders else None) or part

    def _register(self, data: bytes | Path | str, image: CaseImage) -> CaseImage:
        content = data.read_bytes() if isinstance(data, Path) else data.encode() if isinstance(data, str) else data
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.by_digest:
            is_wanted = self.folders is not None and not isinstance(data, str)
            read_image = data.read_bytes if isinstance(data, Path) else self._store(content) if is_wanted else None
            self.by_digest[digest] = replace(
                image,
                image_id=f"i-{digest[:16]}",
                read=read_image if is_wanted else None,
                size=len(content) if is_wanted else 0,
            )
        registered = self.by_digest[digest]
        if registered.group != image.group:
            raise ImageError(f"its image is that of another patient in {registered.location}")  # names no patient
        return registered

    def _store(self, content: bytes) -> Callable[[], bytes]:
        """Append an image to the file on the disk; return a function that reads it there."""
        if self.spool is None:
            self.spool = tempfile.TemporaryFile(dir=self.spool_folder)  # noqa: SIM115  (read until the set is written)
        position = self.spool.tell()
        self.spool.write(content)
        self.spool.flush()
        return partial(self._unspool, len(content), position)

    def _unspool(self, size: int, position: int) -> bytes:
        # Unlike seek and read, this may be called by several threads.
        return os.pread(self.spool.fileno(), size, position)
