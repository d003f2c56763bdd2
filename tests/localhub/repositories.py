"""Repositories of the loopback Hub, with commits, tags, pull requests and discussions.

A tree is a flat mapping path -> Entry, stored in full in each commit (repositories in tests are
small).
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from .accounts import Account

REPOSITORY_KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
LARGE_SUFFIXES = (
    *("arrow", "npy", "npz", "parquet", "pickle"),
    *("gz", "tar", "zip", "zst"),
    *("jpeg", "jpg", "pdf", "png", "tif", "webp"),
    *("bin", "onnx", "pt", "safetensors"),
)
GITATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LARGE_SUFFIXES)


class Refused(Exception):
    """An error response. `code` becomes X-Error-Code, by which the client chooses its exception."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, dict(headers or {})


@dataclass(frozen=True)
class Entry:
    """A file. `oid` is git's SHA-1 of its blob: the content, or the LFS pointer of a large file."""

    content: bytes
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()

    @cached_property
    def oid(self) -> str:
        # git stores the pointer, not the content, of a large file.
        blob = self.pointer if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(blob) + blob).hexdigest()

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid

    def described(self) -> dict[str, Any]:
        row: dict[str, Any] = {"oid": self.oid, "size": self.size}
        if self.lfs:
            row["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": len(self.pointer)}
        return row


Tree = dict[str, Entry]


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass(frozen=True, eq=False)
class Commit:
    parents: "tuple[Commit, ...]"
    tree: Tree
    title: str
    message: str
    author: str
    date: str = field(default_factory=timestamp)
    sha: str = field(default_factory=lambda: hashlib.sha1(uuid.uuid4().bytes).hexdigest())

    def line(self) -> "Iterator[Commit]":
        """Yield the commit and its first parents, newest first."""
        step: Commit | None = self
        while step:
            yield step
            step = step.parents[0] if step.parents else None

    def rows(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        """Describe files and folders of the tree as the Hub lists them."""
        rows = []
        for path in paths:
            if path in self.tree:
                rows.append({"type": "file", "path": path, **self.tree[path].described()})
            else:
                inside = sorted((p, entry.oid) for p, entry in self.tree.items() if p.startswith(path + "/"))
                oid = hashlib.sha1(json.dumps(inside).encode()).hexdigest()
                rows.append({"type": "directory", "path": path, "oid": oid, "size": 0})
        return rows

    def paths(self) -> set[str]:
        """Return all files and folders."""
        parts = [path.split("/") for path in self.tree]
        return {"/".join(segments[:depth]) for segments in parts for depth in range(1, len(segments) + 1)}


@dataclass
class Repository:
    kind: str
    id: str
    private: bool = False
    gated: str | bool = False
    sdk: str | None = None
    created: str = field(default_factory=timestamp)
    variables: dict[str, str] = field(default_factory=dict)
    branches: dict[str, Commit] = field(default_factory=dict)
    tags: dict[str, Commit] = field(default_factory=dict)
    pulls: dict[str, Commit] = field(default_factory=dict)
    discussions: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]

    @property
    def url_path(self) -> str:
        return f"/{self.id}" if self.kind == "models" else f"/{self.kind}/{self.id}"

    def may_see(self, account: Account | None) -> bool:
        return not self.private or (account is not None and account.owns(self.namespace))

    def may_read_files(self, account: Account | None) -> bool:
        return self.may_see(account) and (not self.gated or (account is not None and account.owns(self.namespace)))

    def commit(self, revision: str) -> Commit:
        """Return the commit of a revision (branch, tag, refs/..., commit id)."""
        commits_by_ref = {
            **self.tags,
            **self.branches,
            **{f"refs/tags/{name}": commit for name, commit in self.tags.items()},
            **{f"refs/heads/{name}": commit for name, commit in self.branches.items()},
            **{f"refs/pr/{number}": commit for number, commit in self.pulls.items()},
        }
        if revision in commits_by_ref:
            return commits_by_ref[revision]
        pending, seen = list(commits_by_ref.values()), set()

        # The list grows while iterating: a breadth-first search through all parents.
        for commit in pending:
            if commit.sha == revision:
                return commit
            pending += [parent for parent in commit.parents if parent.sha not in seen]
            seen |= {parent.sha for parent in commit.parents}

        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def move(self, revision: str, tree: Tree, title: str, message: str, author: str) -> Commit:
        """Add a commit to a branch or a pull request, whose events then include it."""
        commit = Commit((self.commit(revision),), tree, title, message, author)
        if revision.startswith("refs/pr/"):
            number = revision.removeprefix("refs/pr/")
            self.pulls[number] = commit
            self.discussions[number]["events"].append(
                event("commit", author, {"subject": commit.title, "oid": commit.sha})
            )
        else:
            self.branches[revision.removeprefix("refs/heads/")] = commit

        return commit

    def open_pull_request(self, author: str, title: str, text: str, start: Commit, base: str) -> str:
        """Open a pull request and return its number."""
        number = str(len(self.discussions) + 1)
        self.discussions[number] = {
            "num": int(number),
            "title": title[:200],
            "status": "open",
            "isPullRequest": True,
            "createdAt": timestamp(),
            "author": {"name": author},
            "repo": {"name": self.id, "type": REPOSITORY_KINDS[self.kind]},
            "events": [comment(author, text)] if text else [],
            "changes": {
                "base": base if base.startswith("refs/") else f"refs/heads/{base}",
                "mergeCommitId": None,
                "start": start.sha,
            },
        }

        # An open pull request begins at its base and moves with its commits.
        self.pulls[number] = start
        return number


def event(kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": uuid.uuid4().hex[:24],
        "type": kind,
        "createdAt": timestamp(),
        "author": {"name": author},
        "data": data,
    }


def comment(author: str, text: str) -> dict[str, Any]:
    written = timestamp()
    latest = {"raw": text, "html": text, "updatedAt": written, "author": {"name": author}}
    return event("comment", author, {"edited": False, "hidden": False, "latest": latest, "history": [latest]})
