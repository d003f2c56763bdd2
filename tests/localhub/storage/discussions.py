"""What a discussion or pull request is made of, and how one changes. Addresses: routes/discussions.py."""

from __future__ import annotations

import uuid
from typing import Any

from .history import Commit, now
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
        "changes": {
            "base": base if base.startswith("refs/") else f"refs/heads/{base}",
            "mergeCommitId": None,
            "start": start,
        },
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
