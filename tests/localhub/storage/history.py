"""Commits and trees: what a revision holds, the line of commits behind it.

A tree is a flat mapping path -> Entry, kept whole in each commit (repositories in tests are small).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


@dataclass(frozen=True)
class Entry:
    """A file. `oid` is git's sha1 of what git would hold: the content, or for a large file the LFS pointer."""

    oid: str
    size: int
    sha256: str
    lfs: bool = False

    @property
    def pointer_size(self) -> int:
        return len(POINTER.format(self.sha256, self.size))

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid

    def described(self, path: str) -> dict:
        row = {"type": "file", "path": path, "oid": self.oid, "size": self.size}
        if self.lfs:
            row["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": self.pointer_size}
        return row


Tree = dict[str, Entry]


@dataclass(frozen=True)
class Commit:
    sha: str
    parents: tuple[str, ...]
    title: str
    message: str
    author: str
    date: str
    tree: Tree


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def regular(content: bytes, sha256: str) -> Entry:
    return Entry(git_sha1(content), len(content), sha256)


def large(sha256: str, size: int) -> Entry:
    return Entry(git_sha1(POINTER.format(sha256, size).encode()), size, sha256, True)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class History:
    """All commits of all repositories, by their sha."""

    def __init__(self) -> None:
        self._known: dict[str, Commit] = {}

    def add(self, parents: tuple[str, ...], tree: Tree, title: str, message: str, author: str) -> Commit:
        sha = hashlib.sha1(uuid.uuid4().bytes).hexdigest()
        self._known[sha] = Commit(sha, parents, title, message, author, now(), dict(tree))
        return self._known[sha]

    def get(self, sha: str) -> Commit:
        return self._known[sha]

    def line(self, sha: str) -> list[Commit]:
        """The commit and its first parents, newest first."""
        found: list[Commit] = []
        step: str | None = sha
        while step:
            commit = self.get(step)
            found.append(commit)
            step = commit.parents[0] if commit.parents else None
        return found

    def reachable(self, sha: str) -> list[str]:
        """All ancestors and the commit itself, nearest first."""
        seen: dict[str, None] = {}
        waiting = [sha]
        while waiting:
            step = waiting.pop(0)
            if step not in seen:
                seen[step] = None
                waiting.extend(self.get(step).parents)
        return list(seen)


def folders(tree: Tree) -> set[str]:
    return {parent for path in tree for parent in _parents(path)}


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def folder_oid(tree: Tree, folder: str) -> str:
    inside = sorted((path, entry.oid) for path, entry in tree.items() if path.startswith(folder + "/"))
    return hashlib.sha1(json.dumps(inside).encode()).hexdigest()
