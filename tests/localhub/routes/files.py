"""Reading: what a revision holds (tree, paths-info), and the files themselves (resolve, with Range)."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.localhub.storage.history import Commit, folder_oid, folders
from tests.localhub.wire import Answer, Refused, Request

from .table import API, REVISION, route

if TYPE_CHECKING:
    from tests.localhub.server import Hub


@route("GET", f"{API}/tree/{REVISION}(?:/(?P<folder>.*))?")
def tree(hub: Hub, request: Request, kind: str, repo_id: str, revision: str, folder: str | None) -> Answer:
    repository = hub.readable(request, kind, repo_id, listing=True)
    commit = hub.repositories.commit(repository, revision)
    folder = (folder or "").strip("/")
    inside = {path for path in [*commit.tree, *folders(commit.tree)] if not folder or path.startswith(folder + "/")}
    if folder and not inside:
        raise Refused(404, f'"{folder}" does not exist on "{revision}"', "EntryNotFound")
    if request.query.get("recursive", "").lower() not in ("true", "1"):
        depth = folder.count("/") + 1 if folder else 0
        inside = {path for path in inside if path.count("/") == depth}
    paths = sorted(inside)
    start = int(base64.b64decode(request.query["cursor"])) if "cursor" in request.query else 0
    limit = int(request.query.get("limit") or hub.page_size)
    rows = describe(commit, paths[start : start + limit])
    headers = {}
    if start + limit < len(paths):
        again = {**request.query, "cursor": base64.b64encode(str(start + limit).encode()).decode()}
        headers["Link"] = f'<{request.base}{request.path}?{urlencode(again)}>; rel="next"'
    return Answer.json(rows, headers=headers)


@route("POST", f"{API}/paths-info/{REVISION}")
def paths_info(hub: Hub, request: Request, kind: str, repo_id: str, revision: str) -> Answer:
    form = request.form()
    repository = hub.readable(request, kind, repo_id, listing=True)
    commit = hub.repositories.commit(repository, revision)
    known = folders(commit.tree) | commit.tree.keys()
    paths = [path for path in (path.strip("/") for path in form.get("paths", [])) if path in known]
    return Answer.json(describe(commit, paths))


def describe(commit: Commit, paths: list[str]) -> list[dict[str, Any]]:
    rows = []
    for path in paths:
        entry = commit.tree.get(path)
        if entry:
            row = entry.described(path)
        else:
            row = {"type": "directory", "path": path, "oid": folder_oid(commit.tree, path), "size": 0}
        rows.append(row)
    return rows


@route("GET HEAD", f"/(?:(?P<kind>datasets|spaces)/)?(?P<repo_id>[^/]+/[^/]+)/resolve/{REVISION}/(?P<path>.+)")
def resolve(hub: Hub, request: Request, kind: str | None, repo_id: str, revision: str, path: str) -> Answer:
    kind = kind or "models"
    repository = hub.readable(request, kind, repo_id)
    commit = hub.repositories.commit(repository, revision)
    entry = commit.tree.get(path)
    if entry is None:
        raise Refused(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit.sha})
    headers = {
        "X-Repo-Commit": commit.sha,
        "ETag": f'"{entry.etag}"',
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'inline; filename="{path.rsplit("/", 1)[-1]}"',
    }
    if entry.lfs:
        headers |= {"X-Linked-ETag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
    return in_range(hub.repositories.blobs.read(entry.sha256), headers, request.headers.get("Range"))


def in_range(content: bytes, headers: dict[str, str], wanted: str | None) -> Answer:
    """The whole content, or the one range of it that was asked for (RFC 9110, 14)."""
    if wanted is None:
        return Answer(200, headers, content)
    first, last = byte_range(wanted, len(content))
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Answer(206, headers, content[first : last + 1])


def byte_range(wanted: str, size: int) -> tuple[int, int]:
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted.replace(" ", ""))
    first, last = (found[1], found[2]) if found else ("", "")
    start = int(first) if first else size - int(last or 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if start > end or start < 0:
        raise Refused(416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return start, end
