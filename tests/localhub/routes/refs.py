"""Branches, tags, the list of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.localhub.wire import Answer, Refused, Request

from .table import API, REVISION, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub


@route("GET", f"{API}/refs")
def refs(hub: Hub, request: Request, kind: str, repo_id: str) -> Answer:
    repository = hub.readable(request, kind, repo_id, listing=True)

    def rows(names: dict[str, str], prefix: str) -> list[dict[str, str]]:
        return [{"name": name, "ref": prefix + name, "targetCommit": sha} for name, sha in names.items()]

    document = {
        "branches": rows(repository.branches, "refs/heads/"),
        "tags": rows(repository.tags, "refs/tags/"),
        "converts": [],
    }
    if request.query.get("include_prs", "").lower() in ("1", "true"):
        document["pullRequests"] = rows(repository.pulls, "refs/pr/")
    return Answer.json(document)


@route("POST", f"{API}/branch/(?P<branch>[^/]+)")
def create_branch(hub: Hub, request: Request, kind: str, repo_id: str, branch: str) -> Answer:
    start = request.json().get("startingPoint") or "main"
    repository = hub.writable(request, kind, repo_id)
    with hub.repositories.changing(repository):
        if branch in repository.branches:
            raise Refused(409, f"Reference already exists: refs/heads/{branch}")
        repository.branches[branch] = hub.repositories.sha(repository, start)
    return Answer.json({})


@route("POST", f"{API}/tag/{REVISION}")
def create_tag(hub: Hub, request: Request, kind: str, repo_id: str, revision: str) -> Answer:
    tag = request.json()["tag"]
    repository = hub.writable(request, kind, repo_id)
    with hub.repositories.changing(repository):
        if tag in repository.tags:
            raise Refused(409, f"Tag reference exists already: refs/tags/{tag}")
        repository.tags[tag] = hub.repositories.sha(repository, revision)
    return Answer.json({})


@route("GET", f"{API}/commits/{REVISION}")
def commits(hub: Hub, request: Request, kind: str, repo_id: str, revision: str) -> Answer:
    repository = hub.readable(request, kind, repo_id, listing=True)
    line = hub.repositories.history.line(hub.repositories.sha(repository, revision))
    rows = [
        {
            "id": commit.sha,
            "title": commit.title,
            "message": commit.message,
            "date": commit.date,
            "authors": [{"user": commit.author}],
        }
        for commit in line
    ]
    return Answer.json(rows, headers={"X-Total-Count": str(len(rows))})
