"""A page on which people review one item at a time, and its server.

The page has images, a question, and fields with buttons and keyboard shortcuts. Every decision is
written to a journal. Curation uses the page to review pairs, to validate questions, to tag labels
and to decide about burned-in text; evaluation uses it to ask a human reader. What the page reports
as saved is on disk.

It is served on this machine only, unless another address is given, by one server per folder at a
time. A page that other machines can reach is opened with a personal link for each reviewer; its
secret also identifies the reviewer. `serve_page` serves until it is stopped, `serve_meanwhile`
while other code runs.

See also: markup, style and script (`page_markup.py`).
"""

import hmac
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from pydantic import BaseModel
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dataset_builders.browser_page.page_markup import render_page
from dataset_builders.errors import BadInput, replace_surrogates
from dataset_builders.files import Journal, lock_folder, read_journal, write_json
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import PNG_SIGNATURE, decode_image, strip_metadata


@dataclass(frozen=True)
class Field:
    """A field that a reviewer fills in for an item.

    Attributes:
        kind: `choice`: one of the choices; `checks`: any number of them; `text`: a text; `list`: a
            list of texts, with the choices as suggestions.
        choices: (value, shown text).
        keys: keyboard shortcuts of the choices, in order; for a text, the shortcut to start typing.
        commit: text of a button that saves the choice, which can be changed until then, and
            continues with the next open item. Required for `checks`.
        advances: True if saving it continues with the next open item.
    """

    name: str
    label: str
    kind: Literal["choice", "checks", "text", "list"]
    choices: Sequence[tuple[str, str]] = ()
    keys: Sequence[str] = ()
    help: str = ""
    commit: str = ""
    advances: bool = False


@dataclass(frozen=True)
class ItemView:
    """What a reviewer sees of an item.

    Attributes:
        values: field -> this reviewer's value, or the shared one.
        options: (text, True if it is correct).
        pictures: caption of each picture.
        details: text that is shown on request.
        fields: the fields, if they depend on the item; their names are among the task's.
    """

    question: str
    values: Mapping[str, Any]
    heading: str = ""
    options: Sequence[tuple[str, bool]] = ()
    pictures: Sequence[str] = ()
    details: str = ""
    fields: Sequence[Field] = ()


@dataclass(frozen=True)
class ReviewTask:
    """What a page is used for: its items, its fields, and how decisions are saved.

    Attributes:
        items: called with the reviewer; returns the ids of the items.
        show: called with reviewer and item; returns the item's view.
        save: called with reviewer, item, field, the new value, and the value that the page showed
            before; returns a confirmation, or raises BadInput to refuse the value.
        is_done: called with reviewer and item; returns True if nothing is left to decide.
        picture: called with item and number; returns (media type, bytes).
        names: reviewers' names to choose from; if empty, reviewers type their names.
        in_order: True if only the first open item can be seen.
    """

    title: str
    fields: Sequence[Field]
    items: Callable[[str], Sequence[str]]
    show: Callable[[str, str], ItemView]
    save: Callable[[str, str, str, Any, Any], str]
    is_done: Callable[[str, str], bool]
    picture: Callable[[str, int], tuple[str, bytes]] | None = None
    names: Sequence[str] = ()
    summary: Callable[[], str] | None = None
    summary_label: str = ""
    finished: str = "Nothing is left to decide."
    in_order: bool = False


class Decision(BaseModel):
    """A decision as the page sends it."""

    reviewer: str = ""
    item: str
    field: str
    value: Any = None
    seen: Any = None


def build_page(
    task: ReviewTask, reviewer_of_cookies: Callable[[Mapping[str, str]], str | None] | None = None
) -> FastAPI:
    """Build the page as an application.

    Args:
        task: items and fields of the page.
        reviewer_of_cookies: returns the reviewer whose personal link set a request's cookies; if
            None, reviewers type their names.
    """
    # The page is the only client, so FastAPI's pages of documentation are switched off.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    fields = {field.name: field for field in task.fields}
    lock = threading.Lock()  # decisions are applied one at a time, and the later one wins

    def reviewer_name(request: Request, typed: str) -> str:
        return (
            " ".join(replace_surrogates(typed).split())
            if reviewer_of_cookies is None
            else reviewer_of_cookies(request.cookies) or ""
        )

    def open_item(reviewer: str, items: Sequence[str], index: int) -> int:
        # The current item comes last: it is shown again only if it is the only open one.
        order = [*range(index + 1, len(items)), *range(index + 1)]
        default = -1 if task.in_order or not order else order[0]
        return next((k for k in order if not task.is_done(reviewer, items[k])), default)

    def item_state(reviewer: str, index: int, items: Sequence[str]) -> dict[str, Any]:
        # Progress is counted per reviewer, so it needs a name.
        done = sum(task.is_done(reviewer, item_id) for item_id in items) if reviewer else 0
        state = {"reviewer": reviewer, "items": len(items), "done": done, "finished": task.finished}
        # Without an item, the page says that nothing is left.
        if not 0 <= index < len(items):
            return state
        return state | {"item": items[index], "number": index + 1} | asdict(task.show(reviewer, items[index]))

    @app.get("/")
    def page(request: Request) -> HTMLResponse:
        config = {"fields": [asdict(field) for field in task.fields], "names": list(task.names), "name": reviewer_name(request, ""),
                  "linked": reviewer_of_cookies is not None,
                  "summary": task.summary_label if task.summary else "", "title": task.title, "in_order": task.in_order}  # fmt: skip
        # Confidential content must not stay in a browser's cache.
        return HTMLResponse(render_page(task.title, config), headers={"cache-control": "no-store"})

    @app.get("/item")
    def item(
        request: Request,
        reviewer: str = "",
        item: str = "",
        go: str = "here",
    ) -> dict[str, Any]:
        """Return the item that `go` asks for: here, next, previous, open, or an item's number."""
        with lock:
            name = reviewer_name(request, reviewer)
            items = task.items(name)
            index = items.index(item) if item in items else -1
            if task.in_order:
                index = open_item(name, items, -1)
            elif go.isdecimal():
                index = min(max(int(go), 1), len(items)) - 1
            elif go in ("next", "previous") and items:
                index = (index + (1 if go == "next" else -1)) % len(items) if index >= 0 else 0
            elif go == "open" or index < 0:
                index = open_item(name, items, index)
            return item_state(name, index, items)

    @app.post("/save")
    def save(request: Request, decision: Decision) -> dict[str, Any]:
        with lock:
            name = reviewer_name(request, decision.reviewer)
            items, field = task.items(name), fields.get(decision.field)
            try:
                if decision.item not in items or field is None:
                    raise BadInput(f"{decision.item} cannot be decided here.")
                message = task.save(
                    name,
                    decision.item,
                    decision.field,
                    decision.value,
                    decision.seen,
                )
            except (BadInput, OSError) as error:
                return {"error": str(error)}
            # Saving may have removed the item.
            items = task.items(name)
            index = items.index(decision.item) if decision.item in items else -1
            follows = field.commit or field.advances
            return {"said": message} | item_state(name, open_item(name, items, index) if follows else index, items)

    @app.get("/picture/{number}")
    def picture(number: int, item: str) -> Response:
        try:
            if task.picture is None:
                raise HTTPException(404)
            media_type, encoded = task.picture(item, number)
        except (BadInput, ImageError, OSError, KeyError, IndexError) as error:
            raise HTTPException(404, str(error)) from None
        return Response(encoded, media_type=media_type, headers={"cache-control": "no-store"})

    @app.get("/summary")
    def summary() -> dict[str, str]:
        return {"text": task.summary() if task.summary else ""}

    return app


def record_decision(journal: Path, reviewer: str, item: str, field: str, value: Any) -> str:
    """Append a decision to a journal.

    Args:
        journal: the journal.
        reviewer: name of the reviewer.
        item: id of the item.
        field: name of the field.
        value: what was decided (JSON).

    Returns:
        The time of the decision (UTC, ISO 8601), once it is on disk.

    Raises:
        BadInput: the name is blank.
    """
    if not reviewer.strip():
        raise BadInput("Give your name first: every decision is recorded with its reviewer.")
    when = datetime.now(UTC).isoformat(timespec="milliseconds")
    with Journal(journal) as log:
        log.append(
            {"when": when, "reviewer": reviewer, "item": item, "field": field, "value": value},
        )
        # The page says "saved" only after the entry is on disk.
        log.sync()
    return when


def read_decisions(journal: Path) -> dict[tuple[str, str, str], Any]:
    """Return (item, field, reviewer) -> latest value from a journal, in order of first decision."""
    return {(entry["item"], entry["field"], entry["reviewer"]): entry["value"] for entry in read_journal(journal)}


def encode_for_browser(stored: bytes) -> tuple[str, bytes]:
    """Encode a picture for a reviewer's browser, in full resolution.

    Args:
        stored: bytes of the image file.

    Returns:
        Media type, and the picture that models are shown. It has no metadata, since reviewers may
        be outside the institution.
    """
    encoded = decode_image(strip_metadata(stored)).encoded()
    return f"image/{'png' if encoded.startswith(PNG_SIGNATURE) else 'jpeg'}", encoded


LOOPBACK_HOST = "127.0.0.1"
REVIEWERS_FILE = "reviewers.json"
KEY_PARAMETER = "key"
REVIEWER_COOKIE = "medprobe_reviewer"


class ReviewAccess:
    """The reviewers of a folder and their secrets.

    Secrets are stored in `reviewers.json`, which only its owner can read, so that links survive a
    restart.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Load or create the reviewers' secrets.

        Args:
            folder: folder of the page.
            names: names of the reviewers; blank ones are ignored.

        Raises:
            BadInput: all names are blank.
        """
        reviewers = list(dict.fromkeys(" ".join(name.split()) for name in names if name.strip()))
        if not reviewers:
            raise BadInput(
                "--reviewers: names no reviewer. Give the reviewers' names, separated by commas: each gets a personal link."
            )
        path = folder / REVIEWERS_FILE
        # Restrict access before the secrets are written: replacing a file keeps its mode.
        path.touch(mode=0o600)
        stored_keys: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8") or "{}")
        self._names = {stored_keys.get(name) or secrets.token_urlsafe(24): name for name in reviewers}
        # Reviewers who are not named this time keep their links.
        write_json(path, dict(stored_keys) | {name: key for key, name in self._names.items()})

    def links(self, address: str) -> dict[str, str]:
        """Map each reviewer to a personal link to the page at `address`."""
        return {name: f"{address}/?{urlencode({KEY_PARAMETER: key})}" for key, name in self._names.items()}

    def reviewer(self, cookies: Mapping[str, str]) -> str | None:
        """Return the reviewer that a request's cookies belong to."""
        return self._reviewer_of_key(cookies.get(REVIEWER_COOKIE, ""))

    def _reviewer_of_key(self, candidate: str) -> str | None:
        # Compare every key in constant time, since the duration must not reveal a matching prefix.
        matches = [name for key, name in self._names.items() if hmac.compare_digest(key.encode(), candidate.encode())]
        return matches[0] if matches else None

    def guard(self, app: FastAPI, encrypted: bool) -> None:
        """Restrict an application to reviewers.

        A personal link sets the cookie that every other request needs; requests without it get
        status 401.

        Args:
            app: the application.
            encrypted: True if the page is served by HTTPS; the cookie is then sent by HTTPS only.
        """

        @app.middleware("http")
        async def guarded(request: Request, call_next: RequestResponseEndpoint) -> Response:
            key = request.query_params.get(KEY_PARAMETER, "")
            if self._reviewer_of_key(key):
                # The redirect removes the secret from the address bar.
                redirect = RedirectResponse(request.url.path, 303)
                redirect.set_cookie(
                    REVIEWER_COOKIE,
                    key,
                    httponly=True,
                    samesite="strict",
                    secure=encrypted,
                )
                return redirect
            if self.reviewer(request.cookies) is None:
                return PlainTextResponse("This page requires your personal link.\n", 401)
            return await call_next(request)


def serve_page(
    build: Callable[[ReviewAccess | None], FastAPI],
    folder: Path,
    task: str,
    doing: str,
    port: int,
    host: str = LOOPBACK_HOST,
    reviewers: Sequence[str] = (),
    certificate: Path | None = None,
) -> None:
    """Serve a page that writes into a folder until it is stopped.

    Args:
        build: builds the application.
        folder: folder that the page writes into; its lock `task` is held.
        task: name of the lock.
        doing: first words of the line printed when the page is ready.
        port: TCP port.
        host: address to listen on; any other than 127.0.0.1 requires `reviewers`.
        reviewers: names of the reviewers; with names, only their personal links open the page.
        certificate: PEM file of certificate and private key, to serve HTTPS.

    Raises:
        BadInput: the port is in use, the address does not belong to this machine, or another
            server holds the folder.
    """
    import uvicorn

    # Drafts and images are confidential, so a page on a network must not be open to everybody.
    if host != LOOPBACK_HOST and not reviewers:
        raise BadInput(
            f'--host {host}: opens the page to other machines. Name the reviewers with --reviewers "Ada Byron,Bo Li".'
        )
    if certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate)
        except ssl.SSLError:
            raise BadInput(
                f"--certificate {certificate}: not a PEM file with a certificate and its private key. Put both into one file."
            ) from None
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder.")

    access = ReviewAccess(folder, reviewers) if reviewers else None
    address = f"{'https' if certificate else 'http'}://{host}:{port}"
    for name, link in access.links(address).items() if access else ():
        print(f"{name}: {link}", flush=True)
    if access and not certificate and host != LOOPBACK_HOST:
        print(
            "traffic is not encrypted: give --certificate, or use a network you trust",
            flush=True,
        )

    # Check the port before the page is built, because uvicorn would only log that it cannot be
    # used.
    _bind(host, port).close()
    with lock_folder(folder, task):
        app = build(access)
        print(
            f"{doing} on {address} (stop with Ctrl-C; everything shown as saved is saved)",
            flush=True,
        )
        if access:
            access.guard(app, certificate is not None)
        uvicorn.run(app, host=host, port=port, log_level="warning", ssl_certfile=certificate)


@contextmanager
def serve_meanwhile(app: FastAPI, port: int) -> Iterator[str]:
    """Serve a page on this machine in a thread, for the duration of the context.

    Requests that address another host name are refused: a website whose name is made to point here
    could otherwise read the page.

    Args:
        app: the application; its requests must end soon once the context ends.
        port: preferred TCP port; another one is used if it is taken.

    Yields:
        The page's address.
    """
    import uvicorn

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK_HOST, "localhost"])
    try:
        listener = _bind(LOOPBACK_HOST, port)
    except BadInput:
        listener = _bind(LOOPBACK_HOST, 0)
    listener.listen()  # from here on, a browser that is quick waits instead of being refused
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK_HOST}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _bind(host: str, port: int) -> socket.socket:
    """Bind a TCP port. Raises BadInput if it cannot be used."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"--host {host} --port {port}: cannot be used ({error}). Give others.") from None
    return listener
