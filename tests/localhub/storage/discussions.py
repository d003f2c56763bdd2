"""What a discussion or pull request is made of, and how one changes. Addresses: routes/discussions.py."""

from __future__ import annotations

import difflib
import uuid
from typing import Any

from .blobs import Blobs
from .history import POINTER, Commit, Entry, History, Tree, changes, merge, now
from .repositories import KINDS, Repository


def event(kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"id": uuid.uuid4().hex[:24], "type": kind, "createdAt": now(), "author": {"name": author}, "data": data}


def comment(author: str, text: str) -> dict[str, Any]:
    written = now()
    latest = {"raw": text, "html": text, "updatedAt": written, "author": {"name": author}}
    return event("comment", author, {"edited": False, "hidden": False, "latest": latest, "history": [latest]})


def open_discussion(repository: Repository, author: str, title: str, text: str, status: str = "open") -> int:
    number = max(map(int, repository.discussions), default=0) + 1
    repository.discussions[str(number)] = {
        "num": number,
        "title": title,
        "status": status,
        "isPullRequest": False,
        "createdAt": now(),
        "author": {"name": author},
        "repo": {"name": repository.id, "type": KINDS[repository.kind]},
        "events": [comment(author, text)] if text else [],
    }
    return number


def open_pull_request(
    repository: Repository, author: str, title: str, text: str, status: str, start: str, base: str = "main"
) -> int:
    number = open_discussion(repository, author, title[:200], text, status)
    repository.discussions[str(number)] |= {
        "isPullRequest": True,
        "changes": {"base": base if base.startswith("refs/") else f"refs/heads/{base}", "mergeCommitId": None},
    }
    repository.pulls[str(number)] = start
    return number


def note_commit(repository: Repository, revision: str, commit: Commit, author: str) -> None:
    """A commit on a pull request shows among its events."""
    number = revision.removeprefix("refs/pr/")
    if revision.startswith("refs/pr/") and number in repository.discussions:
        subject = {"subject": commit.title, "oid": commit.sha}
        repository.discussions[number]["events"].append(event("commit", author, subject))


def summary(discussion: dict[str, Any]) -> dict[str, Any]:
    shown = {key: value for key, value in discussion.items() if key not in ("events", "changes")}
    return shown | {"numComments": sum(each["type"] == "comment" for each in discussion["events"])}


def compared(history: History, repository: Repository, number: str) -> tuple[Tree, Tree, Tree]:
    """(common ancestor, base branch now, pull request now) as trees."""
    base = repository.discussions[number]["changes"]["base"].removeprefix("refs/heads/")
    ours, theirs = repository.branches[base], repository.pulls[number]
    ancestor = history.merge_base(theirs, ours)
    return history.get(ancestor).tree if ancestor else {}, history.get(ours).tree, history.get(theirs).tree


def conflicts(history: History, repository: Repository, number: str) -> list[str]:
    return merge(*compared(history, repository, number))[1]


def diff(history: History, blobs: Blobs, repository: Repository, number: str) -> str:
    """What the pull request changes since it left its base, as git would print it (LFS files as their pointers)."""
    before, _, after = compared(history, repository, number)
    return "".join(_file_diff(blobs, path, before.get(path), after.get(path)) for path in changes(before, after))


def _file_diff(blobs: Blobs, path: str, old: Entry | None, new: Entry | None) -> str:
    head = f"diff --git a/{path} b/{path}\n"
    if old is None:
        head += "new file mode 100644\n"
    if new is None:
        head += "deleted file mode 100644\n"
    head += f"index {old.oid if old else '0' * 40}..{new.oid if new else '0' * 40}\n"
    before, after = (_lines(blobs, entry) for entry in (old, new))
    if before is None or after is None:
        return head + f"Binary files a/{path} and b/{path} differ\n"
    names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
    text = "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(before, after, *names)
    )
    return head + text


def _lines(blobs: Blobs, entry: Entry | None) -> list[str] | None:
    if entry is None:
        return []
    if entry.lfs:
        return POINTER.format(entry.sha256, entry.size).splitlines(keepends=True)
    try:
        return blobs.read(entry.sha256).decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
