"""Writing: which files go where (preupload), LFS upload, commits (also as pull requests)."""

from __future__ import annotations

import base64
import fnmatch
import json
from typing import TYPE_CHECKING, Any

from tests.localhub.accounts import Token
from tests.localhub.storage.discussions import note_commit, open_pull_request
from tests.localhub.storage.history import Tree, large, regular
from tests.localhub.storage.repositories import Repository
from tests.localhub.wire import Answer, Refused, Request

from .table import API, REVISION, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub

REGULAR_AT_MOST = 10 << 20


@route("POST", f"{API}/preupload/{REVISION}")
def preupload(hub: Hub, request: Request, kind: str, repo_id: str, revision: str) -> Answer:
    asked = request.json()
    repository = hub.changeable(request, kind, repo_id, revision, proposing="create_pr" in request.query)
    tree = hub.repositories.commit(repository, revision).tree
    patterns = _large_patterns(hub, tree)
    ignored = [line for line in asked.get("gitIgnore", "").splitlines() if line and not line.startswith("#")]
    rows = []
    for file in asked["files"]:
        path, there = file["path"], tree.get(file["path"])
        sample = base64.b64decode(file.get("sample", ""))
        name = path.rsplit("/", 1)[-1]
        is_large = any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(path, p) for p in patterns)
        is_large = is_large or file.get("size", 0) > REGULAR_AT_MOST or b"\0" in sample
        rows.append(
            {
                "path": path,
                "uploadMode": "lfs" if is_large else "regular",
                "shouldIgnore": any(fnmatch.fnmatch(path, p) or fnmatch.fnmatch(name, p) for p in ignored),
                "oid": there.etag if there else None,
            }
        )
    return Answer.json({"files": rows})


def _large_patterns(hub: Hub, tree: Tree) -> list[str]:
    entry = tree.get(".gitattributes")
    lines = hub.repositories.blobs.read(entry.sha256).decode(errors="replace").splitlines() if entry else []
    return [line.split()[0] for line in lines if "filter=lfs" in line]


@route("POST", "/(?:(?P<kind>datasets|spaces)/)?(?P<repo_id>[^/]+/[^/]+?)\\.git/info/lfs/objects/batch")
def lfs_batch(hub: Hub, request: Request, kind: str | None, repo_id: str) -> Answer:
    asked = request.json()
    hub.changeable(request, kind or "models", repo_id, "main", proposing=True)
    objects = []
    for wanted in asked["objects"]:
        row: dict[str, Any] = {"oid": wanted["oid"], "size": wanted["size"]}
        if not hub.repositories.blobs.has(wanted["oid"]):
            row["actions"] = {"upload": {"href": f"{request.base}/lfs/{wanted['oid']}?size={wanted['size']}"}}
        objects.append(row)
    return Answer.json({"transfer": "basic", "objects": objects})


@route("PUT", "/lfs/(?P<oid>[0-9a-f]{64})")
def lfs_put(hub: Hub, request: Request, oid: str) -> Answer:
    try:
        hub.repositories.blobs.put(request.body(), expected=oid)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    return Answer()


@route("POST", f"{API}/commit/{REVISION}")
def commit(hub: Hub, request: Request, kind: str, repo_id: str, revision: str) -> Answer:
    lines = [json.loads(line) for line in request.body().splitlines() if line.strip()]
    proposing = request.query.get("create_pr") in ("1", "true")
    repository = hub.changeable(request, kind, repo_id, revision, proposing)
    token = hub.token(request)
    assert token is not None
    header = next((line["value"] for line in lines if line["key"] == "header"), None)
    if header is None or not header.get("summary"):
        raise Refused(400, "A commit needs a summary")
    with hub.repositories.changing(repository):
        document = _commit(hub, request, repository, revision, proposing, token, header, lines)
    return Answer.json(document)


def _commit(
    hub: Hub,
    request: Request,
    repository: Repository,
    revision: str,
    proposing: bool,
    token: Token,
    header: dict[str, Any],
    lines: list[dict[str, Any]],
) -> dict[str, Any]:
    head = hub.repositories.sha(repository, revision)
    parent = header.get("parentCommit")
    if parent and not proposing and not head.startswith(parent):
        raise Refused(412, "A commit has happened since. Please refresh and try again.")
    title, message = header["summary"], header.get("description", "")
    number = None
    if proposing:
        start = hub.repositories.sha(repository, parent) if parent else head
        number = open_pull_request(repository, token.user.name, title, message, "open", start, revision)
        revision = f"refs/pr/{number}"
    before = hub.repositories.commit(repository, revision).tree
    after = _applied(hub, before, lines)
    done = hub.repositories.move(repository, revision, after, title, message, token.user.name)
    note_commit(repository, revision, done, token.user.name)
    document = {
        "success": True,
        "commitOid": done.sha,
        "commitUrl": f"{request.base}{repository.url_path}/commit/{done.sha}",
        "hookOutput": "",
    }
    if number is not None:
        document["pullRequestUrl"] = f"{request.base}{repository.url_path}/discussions/{number}"
    return document


def _applied(hub: Hub, before: Tree, lines: list[dict[str, Any]]) -> Tree:
    tree, blobs = dict(before), hub.repositories.blobs
    for line in lines:
        key, value = line["key"], line["value"]
        if key == "header":
            continue
        path = _safe(value["path"])
        if key == "deletedFile":
            if tree.pop(path, None) is None:
                raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
        elif key == "deletedFolder":
            inside = [each for each in tree if each.startswith(path.rstrip("/") + "/")]
            if not inside:
                raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            for each in inside:
                del tree[each]
        elif key == "file":
            content = base64.b64decode(value["content"])
            tree[path] = regular(content, blobs.put(content))
        elif key == "lfsFile":
            if not blobs.has(value["oid"]):
                raise Refused(400, f"LFS pointer pointed to a file that does not exist: {path}")
            tree[path] = large(value["oid"], len(blobs.read(value["oid"])))
        else:
            raise Refused(400, f"Unknown operation {key}")
    return tree


def _safe(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or ".git" in parts or not path.strip("/"):
        raise Refused(400, f"Invalid path {path}")
    return path.removeprefix("./")
