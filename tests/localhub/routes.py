"""Routes of the loopback Hub, registered by the functions below.

Patterns match the RAW path: a revision or a tree path is one percent-encoded segment.
"""

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
from .repositories import (
    GITATTRIBUTES,
    REPOSITORY_KINDS,
    Commit,
    Entry,
    Refused,
    Repository,
    Tree,
    comment,
    event,
)

API = "/api/(?P<kind>models|datasets|spaces)/(?P<repo_id>[^/]+/[^/]+)"
REPO_PATTERN = "/(?:(?P<kind>datasets|spaces)/)?(?P<repo_id>[^/]+/[^/]+?)"
REVISION = "(?P<revision>[^/]+)"
MAX_REGULAR_FILE_BYTES = 10 << 20


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def json(cls, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> "Answer":
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
    """State shared by the routes."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.uploads: dict[str, bytes] = {}
        """Uploaded large files by SHA-256, committed or not."""
        self.jobs: list[dict[str, Any]] = []


ROUTES: list[tuple[frozenset[str], re.Pattern[str], str, Callable[..., Answer]]] = []


def route(methods: str, pattern: str, needs: str = "") -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a function for these addresses.

    `needs` is the permission on the repository in the address (see, read, propose, commit, write);
    the function then receives the repository.
    """

    def remember(handler: Callable[..., Answer]) -> Callable[..., Answer]:
        ROUTES.append((frozenset(methods.split()), re.compile(pattern), needs, handler))
        return handler

    return remember


def dispatch(hub: Hub, request: Request) -> Answer:
    for methods, pattern, needs, handler in ROUTES:
        # The first registered route that matches wins.
        match = pattern.fullmatch(request.path) if request.method in methods else None
        if match:
            arguments: dict[str, Any] = {
                name: unquote(text) if text else text for name, text in match.groupdict().items()
            }
            if needs:
                kind, repo_id = arguments.pop("kind", None) or "models", arguments.pop("repo_id")
                arguments["repository"] = _authorized_repository(
                    hub, request, kind, repo_id, needs, arguments.get("revision", "main")
                )
            return handler(hub, request, **arguments)

    raise Refused(404, f"This loopback Hub has no {request.method} {request.path}")


def _authorized_repository(
    hub: Hub, request: Request, kind: str, repo_id: str, needs: str, revision: str
) -> Repository:
    """Return the repository if the request may access it.

    An invisible repository is reported as missing. A pull request needs fewer permissions than a
    commit, and its author may commit to it.
    """
    account = request.account
    repository = hub.repositories.get((kind, repo_id.lower()))
    if repository is None or not repository.may_see(account):
        # The Hub hides private repositories: 401 without a token, 404 with one.
        raise Refused(404 if account else 401, "Repository not found", "RepoNotFound")
    if needs == "read" and not repository.may_read_files(account):
        reason = "your account is not on the list" if account else "you must be authenticated"
        raise Refused(
            403 if account else 401,
            f"Access to {kind} {repo_id} is restricted and {reason}.",
            "GatedRepo",
        )

    if needs in ("propose", "commit", "write"):
        account = request.signed_in()
        author = repository.discussions.get(revision.removeprefix("refs/pr/"), {}).get("author", {}).get("name")
        proposes = needs == "propose" or (
            needs == "commit" and ("create_pr" in request.query or author == account.name)
        )
        if not account.may_write(repository.namespace) and not (proposes and account.role == "write"):
            raise Refused(403, f"You don't have the required permissions to write to {repo_id}")

    return repository


# Accounts and repositories ------------------------------------------------------------------------


@route("GET", "/api/whoami-v2")
def whoami(hub: Hub, request: Request) -> Answer:
    account = request.signed_in()
    orgs = [{"type": "org", "id": org, "name": org, "fullname": org} for org in account.orgs]
    token = {
        "type": "access_token",
        "accessToken": {"displayName": account.name, "role": account.role},
    }
    names = {"id": account.name, "name": account.name, "fullname": account.name}
    return Answer.json({"type": "user", **names, "isPro": False, "orgs": orgs, "auth": token})


@route("POST", "/api/repos/create")
def create_repository(hub: Hub, request: Request) -> Answer:
    body, account = request.json(), request.signed_in()
    kind = {singular: plural for plural, singular in REPOSITORY_KINDS.items()}[body.get("type") or "model"]
    namespace = body.get("organization") or account.name
    if not account.may_write(namespace):
        raise Refused(
            403,
            f'You don\'t have the rights to create a {REPOSITORY_KINDS[kind]} under the namespace "{namespace}"',
        )

    if kind == "spaces" and not body.get("sdk"):
        raise Refused(400, "A Space needs an sdk")
    repo_id = f"{namespace}/{body['name']}"
    is_new = (kind, repo_id.lower()) not in hub.repositories
    if is_new:
        private = body.get("visibility") == "private" or bool(body.get("private"))
        repository = hub.repositories[kind, repo_id.lower()] = Repository(kind, repo_id, private, sdk=body.get("sdk"))
        tree = {".gitattributes": Entry(GITATTRIBUTES.encode())}
        repository.branches["main"] = Commit((), tree, "initial commit", "", account.name)

    url = request.base + hub.repositories[kind, repo_id.lower()].url_path
    return Answer.json({"url": url, "name": repo_id, "id": repo_id}, 200 if is_new else 409)


@route("GET", f"{API}(?:/revision/{REVISION})?", "see")
def repository_info(hub: Hub, request: Request, repository: Repository, revision: str | None) -> Answer:
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
            document["evalResults"] = list(_eval_result_entries(repository))

    if repository.kind == "spaces":
        document |= {
            "sdk": repository.sdk,
            "runtime": {"stage": "NO_APP_FILE", "hardware": {}, "storage": None},
        }

    return Answer.json(document)


def _front_matter(readme: Entry | None) -> dict[str, Any]:
    """Parse the metadata of a README.md. Raises YAMLError."""
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
def update_settings(hub: Hub, request: Request, repository: Repository) -> Answer:
    body = request.json()
    if "visibility" in body or "private" in body:
        repository.private = body.get("visibility") == "private" or bool(body.get("private"))
    repository.gated = body.get("gated", repository.gated)
    return Answer.json({"private": repository.private, "gated": repository.gated})


@route("GET POST", f"{API}/variables", "write")
def variables(hub: Hub, request: Request, repository: Repository) -> Answer:
    if request.method == "POST":
        body = request.json()
        repository.variables[body["key"]] = body["value"]
    return Answer.json({name: {"value": value} for name, value in repository.variables.items()})


@route("POST", "/api/jobs/(?P<namespace>[^/]+)")
def run_job(hub: Hub, request: Request, namespace: str) -> Answer:
    """Record what `hf jobs run` sends without starting it; tests run the command themselves."""
    if not request.signed_in().may_write(namespace):
        raise Refused(403, f"You may not run jobs in {namespace}")
    job = request.json()
    hub.jobs.append(job)
    owner = {"id": namespace, "name": namespace, "type": "user"}
    public_fields = {key: value for key, value in job.items() if key != "secrets"}
    return Answer.json(
        public_fields | {"id": f"{len(hub.jobs):024x}", "owner": owner, "status": {"stage": "SCHEDULING"}}
    )


# Branches, tags, commits --------------------------------------------------------------------------


@route("GET", f"{API}/refs", "see")
def list_refs(hub: Hub, request: Request, repository: Repository) -> Answer:
    def rows(names: dict[str, Commit], prefix: str) -> list[dict[str, str]]:
        return [{"name": name, "ref": prefix + name, "targetCommit": commit.sha} for name, commit in names.items()]

    refs = {
        "branches": rows(repository.branches, "refs/heads/"),
        "tags": rows(repository.tags, "refs/tags/"),
        "converts": [],
        "pullRequests": rows(repository.pulls, "refs/pr/"),
    }
    return Answer.json(refs)


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
def list_commits(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
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


# Reading files ------------------------------------------------------------------------------------


@route("GET", f"{API}/tree/{REVISION}(?:/(?P<folder>.*))?", "read")
def list_tree(hub: Hub, request: Request, repository: Repository, revision: str, folder: str | None) -> Answer:
    commit = repository.commit(revision)

    # The root folder has an empty prefix.
    prefix = f"{(folder or '').strip('/')}/".lstrip("/")
    paths = {path for path in commit.paths() if path.startswith(prefix)}
    if prefix and not paths:
        raise Refused(404, f'"{folder}" does not exist on "{revision}"', "EntryNotFound")
    if request.query.get("recursive", "").lower() not in ("true", "1"):
        paths = {path for path in paths if path.count("/") == prefix.count("/")}
    return Answer.json(commit.rows(sorted(paths)))


@route("POST", f"{API}/paths-info/{REVISION}", "see")
def paths_info(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    commit, paths = repository.commit(revision), parse_qs(request.body.decode()).get("paths", [])
    return Answer.json(commit.rows(path.strip("/") for path in paths if path.strip("/") in commit.paths()))


@route("GET HEAD", f"{REPO_PATTERN}/resolve/{REVISION}/(?P<path>.+)", "read")
def download_file(hub: Hub, request: Request, repository: Repository, revision: str, path: str) -> Answer:
    """Return a file, or the requested range of it (RFC 9110, 14)."""
    commit = repository.commit(revision)
    entry = commit.tree.get(path)
    if entry is None:
        raise Refused(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit.sha})
    headers = {"X-Repo-Commit": commit.sha, "ETag": f'"{entry.etag}"', "Accept-Ranges": "bytes"}
    headers["Content-Type"] = "application/octet-stream"
    if entry.lfs:
        headers |= {"X-Linked-ETag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
    byte_range = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", "").replace(" ", ""))
    if byte_range is None:
        return Answer(200, headers, entry.content)

    # A range without a start counts from the end of the file.
    start = int(byte_range[1]) if byte_range[1] else entry.size - int(byte_range[2])
    end = min(int(byte_range[2]), entry.size - 1) if byte_range[1] and byte_range[2] else entry.size - 1
    if not 0 <= start <= end:
        raise Refused(416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{entry.size}"})
    headers["Content-Range"] = f"bytes {start}-{end}/{entry.size}"
    return Answer(206, headers, entry.content[start : end + 1])


# Writing: which files go where (preupload), LFS upload, commits (also as pull requests) -----------


@route("POST", f"{API}/preupload/{REVISION}", "commit")
def preupload(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    tree = repository.commit(revision).tree
    attributes = tree[".gitattributes"].content.decode(errors="replace").splitlines()
    patterns = [line.split()[0] for line in attributes if "filter=lfs" in line]
    rows = []
    for file in request.json()["files"]:
        path, sample = file["path"], base64.b64decode(file.get("sample", ""))

        # Binary content goes to LFS, as the Hub's own check for NUL bytes decides.
        large = any(fnmatch.fnmatch(path.rsplit("/", 1)[-1], pattern) for pattern in patterns) or b"\0" in sample
        mode = "lfs" if large or file.get("size", 0) > MAX_REGULAR_FILE_BYTES else "regular"
        oid = tree[path].etag if path in tree else None
        rows.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})

    return Answer.json({"files": rows})


@route("POST", f"{REPO_PATTERN}\\.git/info/lfs/objects/batch", "propose")
def lfs_batch(hub: Hub, request: Request, repository: Repository) -> Answer:
    objects = []
    for upload in request.json()["objects"]:
        row: dict[str, Any] = {"oid": upload["oid"], "size": upload["size"]}
        if upload["oid"] not in hub.uploads:
            row["actions"] = {"upload": {"href": f"{request.base}/lfs/{upload['oid']}"}}
        objects.append(row)
    return Answer.json({"transfer": "basic", "objects": objects})


@route("PUT", "/lfs/(?P<oid>[0-9a-f]{64})")
def lfs_put(hub: Hub, request: Request, oid: str) -> Answer:
    if Entry(request.body).sha256 != oid:
        raise Refused(400, f"the content is not {oid}")
    hub.uploads[oid] = request.body
    return Answer()


@route("POST", f"{API}/commit/{REVISION}", "commit")
def create_commit(hub: Hub, request: Request, repository: Repository, revision: str) -> Answer:
    header, *lines = [json.loads(line) for line in request.body.splitlines() if line.strip()]
    title, message, parent = (header["value"].get(key) or "" for key in ("summary", "description", "parentCommit"))
    author, head = request.signed_in().name, repository.commit(revision)
    proposing = request.query.get("create_pr") in ("1", "true")

    # Optimistic locking: the client must recompute its files.
    if parent and not proposing and head.sha != parent:
        raise Refused(412, "A commit has happened since. Please refresh and try again.")

    # A pull request may start from an older commit.
    start = repository.commit(parent) if proposing and parent else head
    new_tree = _apply_operations(hub, start.tree, lines)
    document: dict[str, Any] = {"success": True, "hookOutput": ""}
    if proposing:
        number = repository.open_pull_request(author, title, message, start, revision)
        document["pullRequestUrl"] = f"{request.base}{repository.url_path}/discussions/{number}"
        revision = f"refs/pr/{number}"

    new_commit = repository.move(revision, new_tree, title, message, author)
    url = f"{request.base}{repository.url_path}/commit/{new_commit.sha}"
    return Answer.json(document | {"commitOid": new_commit.sha, "commitUrl": url})


def _apply_operations(hub: Hub, old_tree: Tree, lines: list[dict[str, Any]]) -> Tree:
    tree = dict(old_tree)
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
            deleted = [
                candidate for candidate in tree if candidate == path or candidate.startswith(path.rstrip("/") + "/")
            ]
            if not deleted:
                raise Refused(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            for candidate in deleted:
                del tree[candidate]
        else:
            raise Refused(400, f"Unknown operation {key}")

    return tree


# Pull requests: list, details, comment, status, merge ---------------------------------------------

DISCUSSION = f"{API}/discussions/(?P<number>[0-9]+)"
DISCUSSIONS_PER_PAGE = 10


@route("GET", f"{API}/discussions", "see")
def list_discussions(hub: Hub, request: Request, repository: Repository) -> Answer:
    query = request.query
    discussions = [
        {key: value for key, value in discussion.items() if key not in ("events", "changes")}
        for discussion in reversed(repository.discussions.values())
        if query.get("type", "all") in ("all", "pull_request")
        and (query.get("status", "all") == "all" or (query["status"] == "open") == (discussion["status"] == "open"))
        and query.get("author") in (None, "", discussion["author"]["name"])
    ]
    start = int(query.get("p") or 0) * DISCUSSIONS_PER_PAGE
    return Answer.json(
        {
            "discussions": discussions[start : start + DISCUSSIONS_PER_PAGE],
            "count": len(discussions),
            "start": start,
        }
    )


@route("GET", DISCUSSION, "see")
def get_discussion(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    return Answer.json(_discussion(repository, number) | {"filesWithConflicts": []})


@route("POST", f"{DISCUSSION}/comment", "propose")
def add_comment(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    written = comment(request.signed_in().name, request.json().get("comment", ""))
    _discussion(repository, number)["events"].append(written)
    return Answer.json({"newMessage": written})


@route("POST", f"{DISCUSSION}/status", "propose")
def change_status(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    body, account, discussion = request.json(), request.signed_in(), _discussion(repository, number)
    if not account.may_write(repository.namespace) and discussion["author"]["name"] != account.name:
        raise Refused(403, "Only its author or the repository's owners may change its status")
    if discussion["status"] == "merged":
        raise Refused(409, "The pull request is merged")
    return Answer.json({"newStatus": _set_status(discussion, account.name, body["status"], body.get("comment"))})


@route("POST", f"{DISCUSSION}/merge", "write")
def merge_pull_request(hub: Hub, request: Request, repository: Repository, number: str) -> Answer:
    discussion, author = _discussion(repository, number), request.signed_in().name
    if discussion["status"] != "open":
        raise Refused(409, "Only an open pull request can be merged")
    changes = discussion["changes"]
    base = changes["base"].removeprefix("refs/heads/")
    parents = (repository.branches[base], repository.pulls[number])

    # Three-way merge: what changed in the pull request wins over main.
    start_tree, base_tree, head_tree = (commit.tree for commit in (repository.commit(changes["start"]), *parents))

    # Files deleted by the pull request are dropped; files added on main stay.
    unchanged = {path: entry for path, entry in base_tree.items() if path not in start_tree or path in head_tree}
    tree = unchanged | {path: entry for path, entry in head_tree.items() if start_tree.get(path) != entry}
    merge_commit = repository.branches[base] = Commit(parents, tree, f"{discussion['title']} (#{number})", "", author)
    changes["mergeCommitId"] = merge_commit.sha
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


# Native benchmarks: a dataset with an `eval.yaml` has a leaderboard, fed by `.eval_results/*.yaml`
# of model repositories ---------------


@route("GET", "/api/(?P<kind>datasets)/(?P<repo_id>[^/]+/[^/]+)/leaderboard", "see")
def get_leaderboard(hub: Hub, request: Request, repository: Repository) -> Answer:
    tasks = repository.commit("main").tree.get("eval.yaml")
    if tasks is None:
        raise Refused(404, f"{repository.id} is not a benchmark: it has no eval.yaml", "EntryNotFound")
    task_ids = {task["id"] for task in yaml.safe_load(tasks.content)["tasks"]}
    rows: list[dict[str, Any]] = []
    for (kind, _), model in sorted(hub.repositories.items()):
        for entry in _eval_result_entries(model) if kind == "models" and model.may_see(request.account) else ():
            data = entry["data"]
            if data["dataset"]["id"] == repository.id and data["dataset"]["task_id"] in task_ids:
                author = {"type": "user", "name": model.namespace, "fullname": model.namespace}
                row = {
                    "modelId": model.id,
                    "value": data["value"],
                    "verified": bool(data.get("verifyToken")),
                    "filename": entry["filename"],
                    "source": data.get("source"),
                    "author": author,
                    "notes": data.get("notes"),
                }
                rows.append(row | ({"pullRequest": entry["pullRequest"]} if entry["pullRequest"] else {}))

    rows.sort(key=lambda row: -row["value"])
    return Answer.json([{"rank": rank, **row} for rank, row in enumerate(rows, 1)])


def _eval_result_entries(model: Repository) -> Iterator[dict[str, Any]]:
    """Yield {filename, data, pullRequest} of every entry of a model: on main, and changed by open
    pull requests.
    """
    main = model.commit("main").tree
    opened = [number for number, discussion in model.discussions.items() if discussion["status"] == "open"]
    for number, tree in (
        (None, main),
        *((int(number), model.pulls[number].tree) for number in opened),
    ):
        for path, entry in sorted(tree.items()):
            if re.fullmatch(r"\.eval_results/.*\.yaml", path) and (number is None or main.get(path) != entry):
                for data in yaml.safe_load(entry.content):
                    yield {
                        "filename": path,
                        "data": data | {"dataset": dict(data["dataset"])},
                        "pullRequest": number,
                    }
