"""Accounts and repositories: whoami, create, delete, settings, access, information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import yaml

from tests.localhub.accounts import may_write
from tests.localhub.storage.repositories import KINDS, Repository
from tests.localhub.wire import Answer, Refused, Request

from .benchmarks import entries
from .table import API, REVISION, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub

KIND_OF = {singular: kind for kind, singular in KINDS.items()}


@route("GET", "/api/whoami-v2")
def whoami(hub: Hub, request: Request) -> Answer:
    token = hub.token(request)
    if token is None:
        raise Refused(401, "Invalid username or password.")
    user = token.user
    return Answer.json(
        {
            "type": user.kind,
            "id": user.name,
            "name": user.name,
            "fullname": user.name,
            "email": f"{user.name}@localhost",
            "isPro": False,
            "orgs": [{"type": "org", "id": org, "name": org, "fullname": org} for org in user.orgs],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": request.token, "role": token.role},
            },
        }
    )


@route("POST", "/api/repos/create")
def create(hub: Hub, request: Request) -> Answer:
    asked = request.json()
    token = hub.token(request)
    if token is None:
        raise Refused(401, "Invalid username or password.")
    kind = KIND_OF[asked.get("type") or "model"]
    namespace = asked.get("organization") or token.user.name
    if not may_write(token, namespace):
        raise Refused(403, f'You don\'t have the rights to create a {KINDS[kind]} under the namespace "{namespace}"')
    if kind == "spaces" and not asked.get("sdk"):
        raise Refused(400, "A Space needs an sdk")
    private = asked.get("visibility") == "private" or bool(asked.get("private"))
    repository, new = hub.repositories.create(
        kind, namespace, asked["name"], token.user.name, private, asked.get("sdk")
    )
    document = {"url": request.base + repository.url_path, "name": repository.id, "id": repository.id}
    if not new:
        document["error"] = f"You already created this {KINDS[kind]} repo"
    return Answer.json(document, 200 if new else 409)


@route("GET", API)
def information(hub: Hub, request: Request, kind: str, repo_id: str) -> Answer:
    return revision_information(hub, request, kind, repo_id, "main")


@route("GET", f"{API}/revision/{REVISION}")
def revision_information(hub: Hub, request: Request, kind: str, repo_id: str, revision: str) -> Answer:
    token = hub.token(request)
    repository = hub.repositories.see(kind, repo_id, token)
    commit = hub.repositories.commit(repository, revision)
    siblings: list[dict[str, Any]] = []
    for path, entry in sorted(commit.tree.items()):
        sibling: dict[str, Any] = {"rfilename": path}
        if "blobs" in request.query:
            sibling |= {"size": entry.size, "blobId": entry.oid}
            if entry.lfs:
                sibling["lfs"] = {"sha256": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
        siblings.append(sibling)
    card = card_of(hub, repository, commit.sha)
    document = {
        "_id": repository.id,
        "id": repository.id,
        "author": repository.namespace,
        "sha": commit.sha,
        "private": repository.private,
        "gated": repository.gated,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": card.get("tags") or [],
        "cardData": card,
        "createdAt": repository.created,
        "lastModified": commit.date,
        "siblings": siblings,
    }
    if kind == "models":
        document["modelId"] = repository.id
        if "evalResults" in parse_qs(request.raw_query).get("expand", []):
            document["evalResults"] = list(entries(hub, repository))
    if kind == "spaces":
        document |= {"sdk": repository.sdk, "runtime": {"stage": "NO_APP_FILE", "hardware": {}, "storage": None}}
    return Answer.json(document)


def card_of(hub: Hub, repository: Repository, sha: str) -> dict[str, Any]:
    entry = hub.repositories.history.get(sha).tree.get("README.md")
    if entry is None or not repository.may_see(None):
        return {}
    return front_matter(hub.repositories.blobs.read(entry.sha256).decode(errors="replace"))[0]


def front_matter(text: str) -> tuple[dict[str, Any], str | None]:
    """(metadata, error) of a README.md."""
    if not text.startswith("---\n"):
        return {}, None
    block, closed, _ = text[4:].partition("\n---")
    try:
        loaded = yaml.safe_load(block) if closed else None
    except yaml.YAMLError as error:
        return {}, str(error).replace("\n", " ")
    if not closed:
        return {}, "the block of metadata is not closed"
    return (loaded, None) if isinstance(loaded, dict) else ({}, "metadata is no mapping")


@route("POST", "/api/validate-yaml")
def validate_yaml(hub: Hub, request: Request) -> Answer:
    error = front_matter(request.json().get("content", ""))[1]
    if error:
        return Answer.json({"errors": [{"message": error}], "warnings": []}, 400)
    return Answer.json({"errors": [], "warnings": []})


@route("PUT", f"{API}/settings")
def settings(hub: Hub, request: Request, kind: str, repo_id: str) -> Answer:
    asked = request.json()
    repository = hub.writable(request, kind, repo_id)
    with hub.repositories.changing(repository):
        if "visibility" in asked or "private" in asked:
            repository.private = asked.get("visibility") == "private" or bool(asked.get("private"))
        if "gated" in asked:
            repository.gated = asked["gated"]
    return Answer.json({"private": repository.private, "gated": repository.gated})


@route("GET", f"{API}/variables")
def variables(hub: Hub, request: Request, kind: str, repo_id: str) -> Answer:
    repository = hub.writable(request, kind, repo_id)
    return Answer.json({name: {"value": value} for name, value in repository.variables.items()})


@route("POST", f"{API}/variables")
def set_variable(hub: Hub, request: Request, kind: str, repo_id: str) -> Answer:
    asked = request.json()
    repository = hub.writable(request, kind, repo_id)
    with hub.repositories.changing(repository):
        repository.variables[asked["key"]] = asked["value"]
    return variables(hub, request, kind, repo_id)
