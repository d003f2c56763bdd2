"""Repositories: settings, refs, discussions. Each change happens whole or not at all."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.localhub.accounts import Token, may_write, owns
from tests.localhub.wire import Refused

from .blobs import Blobs
from .history import Commit, History, Tree, now, regular

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
LARGE_SUFFIXES = (
    *("arrow", "npy", "npz", "parquet", "pickle"),
    *("gz", "tar", "zip", "zst"),
    *("jpeg", "jpg", "pdf", "png", "tif", "webp"),
    *("bin", "onnx", "pt", "safetensors"),
)
GITATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LARGE_SUFFIXES)


@dataclass
class Repository:
    kind: str
    namespace: str
    name: str
    created: str
    private: bool = False
    gated: str | bool = False
    sdk: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: dict[str, str] = field(default_factory=dict)
    discussions: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def url_path(self) -> str:
        return f"/{self.id}" if self.kind == "models" else f"/{self.kind}/{self.id}"

    def may_see(self, token: Token | None) -> bool:
        return not self.private or owns(token, self.namespace)

    def may_read_files(self, token: Token | None) -> bool:
        return self.may_see(token) and (not self.gated or owns(token, self.namespace))

    def may_write(self, token: Token | None) -> bool:
        return may_write(token, self.namespace)


class Repositories:
    def __init__(self) -> None:
        self.blobs, self.history = Blobs(), History()
        self._open: dict[tuple[str, str], Repository] = {}
        self._locks: dict[tuple[str, str], threading.RLock] = {}
        self._lock = threading.RLock()

    def create(
        self, kind: str, namespace: str, name: str, author: str, private: bool, sdk: str | None
    ) -> tuple[Repository, bool]:
        """The repository of that name, and whether it is new."""
        with self._lock:
            key = kind, f"{namespace}/{name}".lower()
            if key in self._open:
                return self._open[key], False
            repository = Repository(kind, namespace, name, now(), private, sdk=sdk)
            content = GITATTRIBUTES.encode()
            tree = {".gitattributes": regular(content, self.blobs.put(content))}
            first = self.history.add((), tree, "initial commit", "", author)
            repository.branches["main"] = first.sha
            self._open[key] = repository
            return repository, True

    def find(self, kind: str, repo_id: str) -> Repository | None:
        return self._open.get((kind, repo_id.lower()))

    def every(self, kind: str) -> list[Repository]:
        with self._lock:
            return [repository for (kind_of, _), repository in sorted(self._open.items()) if kind_of == kind]

    def see(self, kind: str, repo_id: str, token: Token | None) -> Repository:
        """The repository, or the answer that the Hub gives to one who may not know whether it exists."""
        repository = self.find(kind, repo_id)
        if repository is None or not repository.may_see(token):
            raise Refused(404 if token else 401, "Repository not found", "RepoNotFound")
        return repository

    @contextmanager
    def changing(self, repository: Repository) -> Iterator[None]:
        """One change at a time; an error inside leaves the repository as it was."""
        with self._lock:
            lock = self._locks.setdefault((repository.kind, repository.id.lower()), threading.RLock())
        with lock:
            before = copy.deepcopy(vars(repository))
            try:
                yield
            except BaseException:
                vars(repository).update(before)
                raise

    def sha(self, repository: Repository, revision: str) -> str:
        """What a revision (branch, tag, refs/..., full or short commit sha) points to."""
        for prefix, refs in (
            ("refs/heads/", repository.branches),
            ("refs/tags/", repository.tags),
            ("refs/pr/", repository.pulls),
        ):
            if revision.startswith(prefix) and revision[len(prefix) :] in refs:
                return refs[revision[len(prefix) :]]
        if revision in repository.branches or revision in repository.tags:
            return repository.branches.get(revision) or repository.tags[revision]
        if len(revision) >= 7 and set(revision) <= set("0123456789abcdef"):
            heads = [*repository.branches.values(), *repository.tags.values(), *repository.pulls.values()]
            for head in heads:
                for sha in self.history.reachable(head):
                    if sha.startswith(revision):
                        return sha
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def commit(self, repository: Repository, revision: str) -> Commit:
        return self.history.get(self.sha(repository, revision))

    def move(self, repository: Repository, revision: str, tree: Tree, title: str, message: str, author: str) -> Commit:
        """Put a new commit on top of a branch or a pull request."""
        head = self.sha(repository, revision)
        commit = self.history.add((head,), tree, title, message, author)
        if revision.startswith("refs/pr/"):
            repository.pulls[revision[len("refs/pr/") :]] = commit.sha
        else:
            repository.branches[revision.removeprefix("refs/heads/")] = commit.sha
        return commit
