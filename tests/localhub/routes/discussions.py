"""Discussions and pull requests: list, open, details, comment, status, merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.localhub.accounts import Token
from tests.localhub.storage.discussions import comment, event, summary
from tests.localhub.storage.repositories import Repository
from tests.localhub.wire import Answer, Refused, Request

from .table import API, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub

ONE = f"{API}/discussions/(?P<number>[0-9]+)"
PAGE = 10


@route("GET", f"{API}/discussions")
def listed(hub: Hub, request: Request, kind: str, repo_id: str) -> Answer:
    repository = hub.readable(request, kind, repo_id, listing=True)
    query = request.query
    found = [
        summary(each)
        for each in reversed(repository.discussions.values())
        if _type_fits(each, query.get("type", "all"))
        and _status_fits(each, query.get("status", "all"))
        and query.get("author") in (None, "", each["author"]["name"])
    ]
    start = int(query.get("p") or 0) * PAGE
    return Answer.json({"discussions": found[start : start + PAGE], "count": len(found), "start": start})


def _type_fits(discussion: dict[str, Any], wanted: str) -> bool:
    return wanted == "all" or (wanted == "pull_request") == discussion["isPullRequest"]


def _status_fits(discussion: dict[str, Any], wanted: str) -> bool:
    is_open = discussion["status"] in ("open", "draft")
    return wanted == "all" or (wanted == "open") == is_open


@route("GET", ONE)
def details(hub: Hub, request: Request, kind: str, repo_id: str, number: str) -> Answer:
    repository = hub.readable(request, kind, repo_id, listing=True)
    return Answer.json(_discussion(repository, number) | {"filesWithConflicts": []})


@route("POST", f"{ONE}/comment")
def commented(hub: Hub, request: Request, kind: str, repo_id: str, number: str) -> Answer:
    text = request.json().get("comment", "")
    repository, token = _participant(hub, request, kind, repo_id)
    with hub.repositories.changing(repository):
        written = comment(token.user.name, text)
        _discussion(repository, number)["events"].append(written)
    return Answer.json({"newMessage": written})


@route("POST", f"{ONE}/status")
def status_changed(hub: Hub, request: Request, kind: str, repo_id: str, number: str) -> Answer:
    asked = request.json()
    repository, token = _participant(hub, request, kind, repo_id)
    with hub.repositories.changing(repository):
        discussion = _discussion(repository, number)
        if not repository.may_write(token) and discussion["author"]["name"] != token.user.name:
            raise Refused(403, "Only its author or the repository's owners may change its status")
        if asked["status"] not in ("open", "closed"):
            raise Refused(400, f"Invalid status {asked['status']}")
        if discussion["status"] == "merged":
            raise Refused(409, "The pull request is merged")
        changed = _set_status(discussion, token.user.name, asked["status"], asked.get("comment"))
    return Answer.json({"newStatus": changed})


@route("POST", f"{ONE}/merge")
def merged(hub: Hub, request: Request, kind: str, repo_id: str, number: str) -> Answer:
    text = request.json().get("comment")
    repository = hub.writable(request, kind, repo_id)
    token = hub.token(request)
    assert token is not None
    repositories = hub.repositories
    with repositories.changing(repository):
        discussion = _discussion(repository, number)
        if not discussion["isPullRequest"] or discussion["status"] in ("closed", "merged"):
            raise Refused(409, "Only an open pull request can be merged")
        base = discussion["changes"]["base"].removeprefix("refs/heads/")
        title = f"{discussion['title']} (#{number})"
        parents = (repository.branches[base], repository.pulls[number])
        start, ours, theirs = (repositories.history.get(sha).tree for sha in (discussion["changes"]["start"], *parents))
        kept = {path: entry for path, entry in ours.items() if path not in start or path in theirs}
        tree = kept | {path: entry for path, entry in theirs.items() if start.get(path) != entry}
        done = repositories.history.add(parents, tree, title, "", token.user.name)
        repository.branches[base] = done.sha
        discussion["changes"]["mergeCommitId"] = done.sha
        changed = _set_status(discussion, token.user.name, "merged", text)
    return Answer.json({"newStatus": changed})


def _set_status(discussion: dict[str, Any], author: str, status: str, text: str | None) -> dict[str, Any]:
    if text:
        discussion["events"].append(comment(author, text))
    changed = event("status-change", author, {"status": status})
    discussion["events"].append(changed)
    discussion["status"] = status
    return changed


def _discussion(repository: Repository, number: str) -> dict[str, Any]:
    if number not in repository.discussions:
        raise Refused(404, f"No discussion {number}", "EntryNotFound")
    return repository.discussions[number]


def _participant(hub: Hub, request: Request, kind: str, repo_id: str) -> tuple[Repository, Token]:
    """Everybody who may see a repository and has a token that writes may discuss it."""
    repository = hub.changeable(request, kind, repo_id, "main", proposing=True)
    token = hub.token(request)
    assert token is not None
    return repository, token
