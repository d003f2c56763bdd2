"""Which address is answered how: a table of routes, filled by the functions below.

Patterns match the RAW path: a revision or a tree path is one percent-encoded segment.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import yaml

from .accounts import Account
from .repositories import GITATTRIBUTES, KINDS, Commit, Entry, Refused, Repository, Tree, comment, event

API = "/api/(?P<kind>models|datasets|spaces)/(?P<repo_id>[^/]+/[^/]+)"
REPO = "/(?:(?P<kind>datasets|spaces)/)?(?P<repo_id>[^/]+/[^/]+?)"
REVISION = "(?P<revision>[^/]+)"
REGULAR_AT_MOST = 10 << 20


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def json(cls, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
        body = json.dumps(document).encode()
        return cls(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body)


@dataclass
class Request:
    method: str
    path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes
    account: Account | None = None

    @property
    def base(self) -> str:
        return f"http://{self.headers.get('Host', '127.0.0.1')}"

    @property
    def query(self) -> dict[str, str]:
        return {key: values[-1] for key, values in parse_qs(self.raw_query, keep_blank_values=True).items()}

    def json(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}") or {}

    def signed_in(self) -> Account:
        if self.account is None:
            raise Refused(401, "Invalid username or password.")
        return self.account


class Hub:
    """What the routes work on."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.uploads: dict[str, bytes] = {}
        """Large files by their sha256, of which a commit may or may not have been made."""
        self.jobs: list[dict[str, Any]] = []


ROUTES: list[tuple[frozenset[str], re.Pattern[str], str, Callable[..., Answer]]] = []


def route(methods: str, pattern: str, needs: str = "") -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Answer these addresses by a function. `needs`: what the request must be allowed to do with the repository in the address (see, read,
    propose, commit, write), which the function then gets."""

    def remember(handler: Callable[..., Answer]) -> Callable[..., Answer]:
        ROUTES.append((frozenset(methods.split()), re.compile(pattern), needs, handler))
        return handler

    return remember


def dispatch(hub: Hub, request: Request) -> Answer:
    for methods, pattern, needs, handler in ROUTES:
        found = pattern.fullmatch(request.path) if request.method in methods else None
        if found:
            given: dict[str, Any] = {name: unquote(text) if text else text for name, text in found.groupdict().items()}
            if needs:
                kind, repo_id = given.pop("kind", None) or "models", given.pop("repo_id")
                given["repository"] = _allowed(hub, request, kind, repo_id, needs, given.get("revision", "main"))
            return handler(hub, request, **given)
    raise Refused(404, f"This loopback Hub has no {request.method} {request.path}")


def _allowed(hub: Hub, request: Request, kind: str, repo_id: str, needs: str, revision: str) -> Repository:
    """The repository. One that a request may not see is answered as one that is not there; a pull request needs fewer rights than a
    commit, and its author may commit to it."""
    account = request.account
    repository = hub.repositories.get((kind, repo_id.lower()))
    if repository is None or not repository.may_see(account):
        raise Refused(404 if account else 401, "Repository not found", "RepoNotFound")
    if needs == "read" and not repository.may_read_files(account):
        who = "your account is not on the list" if account else "you must be authenticated"
        raise Refused(403 if account else 401, f"Access to {kind} {repo_id} is restricted and {who}.", "GatedRepo")
    if needs in ("propose", "commit", "write"):
        account = request.signed_in()
        author = repository.discussions.get(revision.removeprefix("refs/pr/"), {}).get("author", {}).get("name")
        proposes = needs == "propose" or (
            needs == "commit" and ("create_pr" in request.query or author == account.name)
        )
        if not account.may_write(repository.namespace) and not (proposes and account.role == "write"):
            raise Refused(403, f"You don't have the required permissions to write to {repo_id}")
    return repository


# Accounts and repositories ---------------------------------------------------------------------------------------------------------


@route("GET", "/api/whoami-v2")
def whoami(hub: Hub, request: Request) -> Answer:
    account = request.signed_in()
    orgs = [{"type": "org", "id": org, "name": org, "fullname": org} for org in account.orgs]
    token = {"type": "access_token", "accessToken": {"displayName": account.name, "role": account.role}}
    names = {"id": account.name, "name": account.name, "fullname": account.name}
    return Answer.json({"type": "user", **names, "isPro": False, "orgs": orgs, "auth": token})


@route("POST", "/api/repos/create")
def create(hub: Hub, request: Request) -> Answer:
    asked, account = request.json(), request.signed_in()
    kind = {singular: plural for plural, singular in KINDS.items()}[asked.get("type") or "model"]
    namespace = asked.get("organization") or account.name
    if not account.may_write(namespace):
        raise Refused(403, f'You don\'t have the rights to create a {KINDS[kind]} under the namespace "{namespace}"')
    if kind == "spaces" and not asked.get("sdk"):
        raise Refused(400, "A Space needs an sdk")
    repo_id = f"{namespace}/{asked['name']}"
    new = (kind, repo_id.lower()) not in hub.repositories
    if new:
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        made = hub.repositories[kind, repo_id.lower()] = Repository(kind, repo_id, private, sdk=asked.get("sdk"))
        tree = {".gitattributes": Entry(GITATTRIBUTES.encode())}
        made.branches["main"] = Commit((), tree, "initial commit", "", account.name)
    url = request.base + hub.repositories[kind, repo_id.lower()].url_path
    return Answer.json({"url": url, "name": repo_id, "id": repo_id}, 200 if new else 409)


@route("GET", f"{API}(?:/revision/{REVISION})?", "see")
def information(hub: Hub, request: Request, repository: Repository, revision: str | None) -> Answer:
    commit = repository.commit(revision or "main")
    siblings: list[dict[str, Any]] = []
    for path, entry in sorted(commit.tree.items()):
        sibling: dict[str, Any] = {"rfilename": path}
        if "blobs" in request.query:
            sibling |= entry.described() | {"blobId": entry.oid}
            sibling["lfs"] = sibling.get("lfs", {}) | {"sha256": entry.sha256} if entry.lfs else None
        siblings.append(sibling)
    card = _front_matter(commit.tree.get("README.md")) if not repository.private else {}
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
    if repository.kind == "models":
        document["modelId"] = repository.id
        if "evalResults" in parse_qs(request.raw_query).get("expand", []):
            document["evalResults"] = list(_entries(repository))
    if repository.kind == "spaces":
        document |= {"sdk": repository.sdk, "runtime": {"stage": "NO_APP_FILE", "hardware": {}, "storage": None}}
    return Answer.json(document)


def _front_matter(readme: Entry | None) -> dict[str, Any]:
    """The metadata of a README.md. Raises YAMLError."""
    text = readme.content.decode(errors="replace") if readme else ""
    return yaml.safe_load(text[4:].partition("\n---")[0]) if text.startswith("---\n") else {}


@route("POST", "/api/validate-yaml")
def validate_yaml(hub: Hub, request: Request) -> Answer:
    try:
        _front_matter(Entry(request.json().get("content", "").encode()))
    except yaml.YAMLError as error:
        return Answer.json({"errors": [{"message": str(error)}], "warnings": []}, 400)
    return Answer.json({"errors": [], "warnings": []})


@route("PUT", f"{API}/settings", "write")
def settings(hub: Hub, request: Request, repository: Repository) -> Answer:
    asked = request.json()
    if "visibility" in asked or "private" in asked:
        repository.private = asked.get("visibility") == "private" or bool(asked.get("private"))
    repository.gated = asked.get("gated", repository.gated)
    return Answer.json({"private": repository.private, "gated": repository.gated})


@route("GET POST", f"{API}/variables", "write")
def variables(hub: Hub, request: Request, repository: Repository) -> Answer:
    if request.method == "POST":
        asked = request.json()
        repository.variables[asked["key"]] = asked["value"]
    return Answer.json({name: {"value": value} for name, value in repository.variables.items()})


@route("POST", "/api/jobs/(?P<namespace>[^/]+)")
def run_job(hub: Hub, request: Request, namespace: str) -> Answer:
    """What `hf jobs run` sends is kept, and nothing is started; a test runs the command itself."""
    if not request.signed_in().may_write(namespace):
        raise Refused(403, f"You may not run jobs in {namespace}")
    job = request.json()
    hub.jobs.append(job)
    owner = {"id": namespace, "name": namespace, "type": "user"}
    shown = {key: value for key, value in job.items() if key != "secrets"}
    return Answer.json(shown | {"id": f"{len(hub.jobs):024x}", "owner": owner, "status": {"stage": "SCHEDULING"}})


# Branches, tags, commits -----------------------------------------------------------------------------------------------------------


@route("GET", f"{API}/refs", "see")
def refs(hub: Hub, request: Request, repository: Repository) -> Answer:
    def rows(names: dict[str, Commit], prefix: str) -> list[dict[str, str]]:
        return [{"name": name, "ref": prefix + name, "targetCommit": commit.sha} for name, commit in names.items()]

    branches, tags = rows(repository.branches, "refs/heads/"), rows(repository.tags, "refs/tags/")
    pulls = rows(repository.pulls, "refs/pr/")
    return Answer.json({"branches": branches, "tags": tags, "converts": [], "pullRequests": pulls})


@route("POST", f"{API}/branch/(?P<name>[^/]+)", "write")
def create_branch(hub: Hub, request: Request, repository: Repository, name: str) -> Answer:
    repository.branches[name] = repository.commit(request.json().get("startingPoint") or "main")
    return Answer.json({})


@route("POST", f"{API}/tag/{REVISION}", "write")
def create_tag(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    tag = request.json()["tag"]
    if tag in repository.tags:
        raise Refused(409, f"Tag reference exists already: refs/tags/{tag}")
    repository.tags[tag] = repository.commit(revision)
    return Answer.json({})


@route("GET", f"{API}/commits/{REVISION}", "see")
def commits(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    rows = [
        {
            "id": commit.sha,
            "title": commit.title,
            "message": commit.message,
            "date": commit.date,
            "authors": [{"user": commit.author}],
        }
        for commit in repository.commit(revision).line()
    ]
    return Answer.json(rows, headers={"X-Total-Count": str(len(rows))})


# Reading files ---------------------------------------------------------------------------------------------------------------------


@route("GET", f"{API}/tree/{REVISION}(?:/(?P<folder>.*))?", "read")
def tree(hub: Hub, request: Request, repository: Repository, revision: str, folder: str | None) -> Answer:
    commit = repository.commit(revision)
    above = f"{(folder or '').strip('/')}/".lstrip("/")
    inside = {path for path in commit.paths() if path.startswith(above)}
    if above and not inside:
        raise Refused(404, f'"{folder}" does not exist on "{revision}"', "EntryNotFound")
    if request.query.get("recursive", "").lower() not in ("true", "1"):
        inside = {path for path in inside if path.count("/") == above.count("/")}
    return Answer.json(commit.rows(sorted(inside)))


@route("POST", f"{API}/paths-info/{REVISION}", "see")
def paths_info(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    commit, asked = repository.commit(revision), parse_qs(request.body.decode()).get("paths", [])
    return Answer.json(commit.rows(path.strip("/") for path in asked if path.strip("/") in commit.paths()))


@route("GET HEAD", f"{REPO}/resolve/{REVISION}/(?P<path>.+)", "read")
def resolve(hub: Hub, request: Request, repository: Repository, revision: str, path: str) -> Answer:
    """A file, or the one range of it that was asked for (RFC 9110, 14)."""
    commit = repository.commit(revision)
    entry = commit.tree.get(path)
    if entry is None:
        raise Refused(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit.sha})
    headers = {"X-Repo-Commit": commit.sha, "ETag": f'"{entry.etag}"', "Accept-Ranges": "bytes"}
    headers["Content-Type"] = "application/octet-stream"
    if entry.lfs:
        headers |= {"X-Linked-ETag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", "").replace(" ", ""))
    if wanted is None:
        return Answer(200, headers, entry.content)
    first = int(wanted[1]) if wanted[1] else entry.size - int(wanted[2])
    last = min(int(wanted[2]), entry.size - 1) if wanted[1] and wanted[2] else entry.size - 1
    if not 0 <= first <= last:
        raise Refused(416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{entry.size}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{entry.size}"
    return Answer(206, headers, entry.content[first : last + 1])


# Writing: which files go where (preupload), LFS upload, commits (also as pull requests) -----------------------------------------------


@route("POST", f"{API}/preupload/{REVISION}", "commit")
def preupload(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    there = repository.commit(revision).tree
    attributes = there[".gitattributes"].content.decode(errors="replace").splitlines()
    patterns = [line.split()[0] for line in attributes if "filter=lfs" in line]
    rows = []
    for file in request.json()["files"]:
        path, sample = file["path"], base64.b64decode(file.get("sample", ""))
        large = any(fnmatch.fnmatch(path.rsplit("/", 1)[-1], pattern) for pattern in patterns) or b"\0" in sample
        mode = "lfs" if large or file.get("size", 0) > REGULAR_AT_MOST else "regular"
        oid = there[path].etag if path in there else None
        rows.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return Answer.json({"files": rows})


@route("POST", f"{REPO}\\.git/info/lfs/objects/batch", "propose")
def lfs_batch(hub: Hub, request: Request, repository: Repository) -> Answer:
    objects = []
    for wanted in request.json()["objects"]:
        row: dict[str, Any] = {"oid": wanted["oid"], "size": wanted["size"]}
        if wanted["oid"] not in hub.uploads:
            row["actions"] = {"upload": {"href": f"{request.base}/lfs/{wanted['oid']}"}}
        objects.append(row)
    return Answer.json({"transfer": "basic", "objects": objects})


@route("PUT", "/lfs/(?P<oid>[0-9a-f]{64})")
def lfs_put(hub: Hub, request: Request, oid: str) -> Answer:
    if Entry(request.body).sha256 != oid:
        raise Refused(400, f"the content is not {oid}")
    hub.uploads[oid] = request.body
    return Answer()


@route("POST", f"{API}/commit/{REVISION}", "commit")
def commit(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    header, *lines = [json.loads(line) for line in request.body.splitlines() if line.strip()]
    title, message, parent = (header["value"].get(key) or "" for key in ("summary", "description", "parentCommit"))
    author, head = request.signed_in().name, repository.commit(revision)
    proposing = request.query.get("create_pr") in ("1", "true")
    if parent and not proposing and head.sha != parent:
        raise Refused(412, "A commit has happened since. Please refresh and try again.")
    start = repository.commit(parent) if proposing and parent else head
    after = _applied(hub, start.tree, lines)
    document: dict[str, Any] = {"success": True, "hookOutput": ""}
    if proposing:
        number = repository.open_pull_request(author, title, message, start, revision)
        document["pullRequestUrl"] = f"{request.base}{repository.url_path}/discussions/{number}"
        revision = f"refs/pr/{number}"
    done = repository.move(revision, after, title, message, author)
    url = f"{request.base}{repository.url_path}/commit/{done.sha}"
    return Answer.json(document | {"commitOid": done.sha, "commitUrl": url})


def _applied(hub: Hub, before: Tree, lines: list[dict[str, Any]]) -> Tree:
    tree = dict(before)
    for line in lines:
        key, value = line["key"], line["value"]
        path = value["path"]
        if path.startswith("/") or {"..", ".git"} & set(path.split("/")) or not path.strip("/"):
            raise Refused(400, f"Invalid path {path}")
        if key == "file":
            tree[path] = Entry(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            if value["oid"] not in hub.uploads:
                raise Refused(400, f"LFS pointer pointed to a file that does not exist: {path}")
            tree[path] = Entry(hub.uploads[value["oid"]], lfs=True)
        elif key in ("deletedFile", "deletedFolder"):
            gone = [each for each in tree if each == path or each.startswith(path.rstrip("/") + "/")]
            if not gone:
                raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            for each in gone:
                del tree[each]
        else:
            raise Refused(400, f"Unknown operation {key}")
    return tree


# Pull requests: list, details, comment, status, merge ---------------------------------------------------------------------------------

ONE = f"{API}/discussions/(?P<number>[0-9]+)"
PAGE = 10


@route("GET", f"{API}/discussions", "see")
def listed(hub: Hub, request: Request, repository: Repository) -> Answer:
    query = request.query
    found = [
        {key: value for key, value in each.items() if key not in ("events", "changes")}
        for each in reversed(repository.discussions.values())
        if query.get("type", "all") in ("all", "pull_request")
        and (query.get("status", "all") == "all" or (query["status"] == "open") == (each["status"] == "open"))
        and query.get("author") in (None, "", each["author"]["name"])
    ]
    start = int(query.get("p") or 0) * PAGE
    return Answer.json({"discussions": found[start : start + PAGE], "count": len(found), "start": start})


@route("GET", ONE, "see")
def details(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    return Answer.json(_discussion(repository, number) | {"filesWithConflicts": []})


@route("POST", f"{ONE}/comment", "propose")
def commented(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    written = comment(request.signed_in().name, request.json().get("comment", ""))
    _discussion(repository, number)["events"].append(written)
    return Answer.json({"newMessage": written})


@route("POST", f"{ONE}/status", "propose")
def status_changed(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    asked, account, discussion = request.json(), request.signed_in(), _discussion(repository, number)
    if not account.may_write(repository.namespace) and discussion["author"]["name"] != account.name:
        raise Refused(403, "Only its author or the repository's owners may change its status")
    if discussion["status"] == "merged":
        raise Refused(409, "The pull request is merged")
    return Answer.json({"newStatus": _set_status(discussion, account.name, asked["status"], asked.get("comment"))})


@route("POST", f"{ONE}/merge", "write")
def merged(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    discussion, author = _discussion(repository, number), request.signed_in().name
    if discussion["status"] != "open":
        raise Refused(409, "Only an open pull request can be merged")
    changes = discussion["changes"]
    base = changes["base"].removeprefix("refs/heads/")
    parents = (repository.branches[base], repository.pulls[number])
    start, ours, theirs = (each.tree for each in (repository.commit(changes["start"]), *parents))
    kept = {path: entry for path, entry in ours.items() if path not in start or path in theirs}
    tree = kept | {path: entry for path, entry in theirs.items() if start.get(path) != entry}
    done = repository.branches[base] = Commit(parents, tree, f"{discussion['title']} (#{number})", "", author)
    changes["mergeCommitId"] = done.sha
    return Answer.json({"newStatus": _set_status(discussion, author, "merged", request.json().get("comment"))})


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


# Native benchmarks: a dataset with an `eval.yaml` has a leaderboard, fed by `.eval_results/*.yaml` of model repositories ---------------


@route("GET", "/api/(?P<kind>datasets)/(?P<repo_id>[^/]+/[^/]+)/leaderboard", "see")
def leaderboard(hub: Hub, request: Request, repository: Repository) -> Answer:
    tasks = repository.commit("main").tree.get("eval.yaml")
    if tasks is None:
        raise Refused(404, f"{repository.id} is not a benchmark: it has no eval.yaml", "EntryNotFound")
    known = {task["id"] for task in yaml.safe_load(tasks.content)["tasks"]}
    found: list[dict[str, Any]] = []
    for (kind, _), model in sorted(hub.repositories.items()):
        for entry in _entries(model) if kind == "models" and model.may_see(request.account) else ():
            data = entry["data"]
            if data["dataset"]["id"] == repository.id and data["dataset"]["task_id"] in known:
                author = {"type": "user", "name": model.namespace, "fullname": model.namespace}
                row = {"modelId": model.id, "value": data["value"], "verified": bool(data.get("verifyToken"))}
                row |= {"filename": entry["filename"], "source": data.get("source"), "author": author}
                row |= {"pullRequest": entry["pullRequest"]} if entry["pullRequest"] else {}
                found.append(row | {"notes": data.get("notes")})
    found.sort(key=lambda row: -row["value"])
    return Answer.json([{"rank": rank, **row} for rank, row in enumerate(found, 1)])


def _entries(model: Repository) -> Iterator[dict[str, Any]]:
    """{filename, data, pullRequest} of every entry of a model: main's, and those that an open pull request adds or changes."""
    main = model.commit("main").tree
    opened = [number for number, discussion in model.discussions.items() if discussion["status"] == "open"]
    for number, tree in ((None, main), *((int(number), model.pulls[number].tree) for number in opened)):
        for path, entry in sorted(tree.items()):
            if re.fullmatch(r"\.eval_results/.*\.yaml", path) and (number is None or main.get(path) != entry):
                for data in yaml.safe_load(entry.content):
                    yield {"filename": path, "data": data | {"dataset": dict(data["dataset"])}, "pullRequest": number}
