"""Xet storage: takes the xorbs and shards that `hf_xet` uploads, and says how a file is put together from them.

Formats as `hf_xet` 1.8 writes them. A xorb is a row of chunks, each with a header of 8 bytes; a shard says which chunks of which xorbs
make up a file, and the file's sha256.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow

from .blobs import Blobs

SHARD_HEADER, ROW = 48, 48
BOOKEND = b"\xff" * 32
HAS_VERIFICATION, HAS_SHA256 = 1 << 31, 1 << 30
STORED, LZ4, GROUPED_LZ4 = 0, 1, 2


def hex_of(raw: bytes) -> str:
    """Xet's way to write a hash: four little-endian 64-bit words."""
    return "".join(f"{word:016x}" for word in struct.unpack("<4Q", raw))


@dataclass(frozen=True)
class Chunk:
    start: int
    """First byte of its header in the xorb."""
    packed: int
    scheme: int
    unpacked: int

    @property
    def end(self) -> int:
        return self.start + 8 + self.packed


def chunks_of(xorb: bytes) -> list[Chunk]:
    """Walk the chunk headers; the xorb's own footer (which starts with its name) ends the walk."""
    found, at = [], 0
    while at + 8 <= len(xorb) and xorb[at : at + 7] != b"XETBLOB":
        version, packed, scheme, unpacked = xorb[at], xorb[at + 1 : at + 4], xorb[at + 4], xorb[at + 5 : at + 8]
        if version != 0:
            raise ValueError(f"chunk header of version {version}")
        chunk = Chunk(at, int.from_bytes(packed, "little"), scheme, int.from_bytes(unpacked, "little"))
        if chunk.end > len(xorb):
            raise ValueError("chunk longer than its xorb")
        found.append(chunk)
        at = chunk.end
    return found


def unpack(xorb: bytes, chunk: Chunk) -> bytes:
    content = xorb[chunk.start + 8 : chunk.end]
    if chunk.scheme == STORED:
        return content
    content = pyarrow.decompress(content, chunk.unpacked, codec="lz4", asbytes=True)
    return content if chunk.scheme == LZ4 else ungroup(content)


def ungroup(grouped: bytes) -> bytes:
    """Undo the grouping of every 4th byte, which compresses floats better."""
    plain, at = bytearray(len(grouped)), 0
    for first in range(4):
        count = len(range(first, len(grouped), 4))
        plain[first::4] = grouped[at : at + count]
        at += count
    return bytes(plain)


def files_of(shard: bytes) -> Iterator[dict[str, Any]]:
    """The files that a shard describes: {hash, sha256, terms: [{xorb, unpacked, start, end}]} (positions of chunks)."""
    at = SHARD_HEADER
    while shard[at : at + 32] != BOOKEND:
        file_hash, flags, count = shard[at : at + 32], *struct.unpack_from("<II", shard, at + 32)
        at += ROW
        terms = []
        for _ in range(count):
            _, unpacked, start, end = struct.unpack_from("<IIII", shard, at + 32)
            terms.append({"xorb": hex_of(shard[at : at + 32]), "unpacked": unpacked, "start": start, "end": end})
            at += ROW
        if flags & HAS_VERIFICATION:
            at += ROW * count
        sha256 = None
        if flags & HAS_SHA256:
            sha256 = hex_of(shard[at : at + 32])
            at += ROW
        yield {"hash": hex_of(file_hash), "sha256": sha256, "terms": terms}


class XetStorage:
    def __init__(self, blobs: Blobs):
        self.blobs = blobs
        self.xorbs: dict[str, bytes] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.hashes: dict[str, str] = {}
        """sha256 of a file -> Xet's hash of it"""

    def put_xorb(self, xorb: str, content: bytes) -> bool:
        """ValueError when it is no xorb."""
        chunks_of(content)
        new = xorb not in self.xorbs
        self.xorbs[xorb] = content
        return new

    def put_shard(self, shard: bytes) -> None:
        for file in files_of(shard):
            self.files[file["hash"]] = file
            if file["sha256"]:
                self.hashes[file["sha256"]] = file["hash"]

    def assemble(self, sha256: str) -> bool:
        """Put a file that came as xorbs among the blobs, so that clients without Xet can have it too."""
        file = self.files.get(self.hashes.get(sha256, ""))
        if file is None:
            return False
        self.blobs.put(b"".join(self._content(file)), expected=sha256)
        return True

    def _content(self, file: dict[str, Any]) -> Iterator[bytes]:
        for term in file["terms"]:
            xorb = self.xorbs[term["xorb"]]
            for chunk in chunks_of(xorb)[term["start"] : term["end"]]:
                yield unpack(xorb, chunk)

    def reconstruction(self, file_hash: str, first: int, last: int | None, url: str) -> dict[str, Any] | None:
        """Which chunks to fetch from where for the bytes first..last of a file; None for an unknown file or an empty range."""
        file = self.files.get(file_hash)
        if file is None:
            return None
        terms: list[dict[str, Any]] = []
        fetch: dict[str, list[dict[str, Any]]] = {}
        skipped, at = 0, 0
        for term in file["terms"]:
            chunks = chunks_of(self.xorbs[term["xorb"]])
            wanted = []
            for number in range(term["start"], term["end"]):
                size = chunks[number].unpacked
                if at + size > first and (last is None or at <= last):
                    if not wanted and not terms:
                        skipped = first - at
                    wanted.append(number)
                at += size
            if wanted:
                span = {"start": wanted[0], "end": wanted[-1] + 1}
                unpacked = sum(chunks[number].unpacked for number in wanted)
                terms.append({"hash": term["xorb"], "unpacked_length": unpacked, "range": span})
                where = {"start": chunks[wanted[0]].start, "end": chunks[wanted[-1]].end - 1}
                row = {"range": span, "url": f"{url}/{term['xorb']}", "url_range": where}
                if row not in fetch.setdefault(term["xorb"], []):
                    fetch[term["xorb"]].append(row)
        if not terms:
            return None
        return {"offset_into_first_range": skipped, "terms": terms, "fetch_info": fetch}
