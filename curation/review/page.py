"""The page on which people judge one item at a time: images, question, fields with buttons and keys, each decision in a journal.

Used for reviewing pairs (`review.py`), validating questions and tagging labels (`gmai/validation.py`), and deciding about burned-in text
(`deidentify/review_texts.py`). What the page calls saved is on the disk. See also: markup, style and script (`page_markup.py`), serving
and links (`serving.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from curation.images.image_index import decode_image
from curation.review.page_markup import render_page
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.metadata import PNG_SIGNATURE, strip_metadata
from dataset_builders.journal import Journal, read_journal
from eval_harness.records.names import replace_surrogates


@dataclass(frozen=True)
class Field:
    """A field that a person fills in for an item.

    `kind`: one of `choices`; any of them (`checks`, saved with the button `commit`); a text; a list of
    texts, of which `choices` are suggested. `keys`: shortcuts for the choices in order, or to begin
    typing. `advances`: continue with the next open item.
    """

    name: str
    label: str
    kind: Literal["choice", "checks", "text", "list"]
    choices: Sequence[tuple[str, str]] = ()
    """(value, shown text)"""
    keys: Sequence[str] = ()
    help: str = ""
    commit: str = ""
    advances: bool = False


@dataclass(frozen=True)
class ItemView:
    """An item as its reviewer sees it. `options`: (text, whether it is right); `pictures`: what stands below each; `details`: shown on
    demand; `values`: field -> value, by this reviewer or shared."""

    question: str
    values: Mapping[str, Any]
    heading: str = ""
    options: Sequence[tuple[str, bool]] = ()
    pictures: Sequence[str] = ()
    details: str = ""


@dataclass(frozen=True)
class ReviewTask:
    """One use of the page. `items`: reviewer -> ids; `save`: reviewer, item, field, value and what the page showed before -> what to say,
    or BadInput; `picture`: item, number -> (media type, bytes); `names`: who may be chosen (none: names are typed)."""

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


class Decision(BaseModel):
    """A decision as the page sends it."""

    reviewer: str = ""
    item: str
    field: str
    value: Any = None
    seen: Any = None


def build_page(task: ReviewTask, name_of: Callable[[Mapping[str, str]], str | None] | None = None) -> FastAPI:
    """The page as an application. name_of: cookies -> the reviewer whom a link belongs to, in place of a name that is typed."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    turn = threading.Lock()  # of two quick decisions the second holds

    def who(request: Request, typed: str) -> str:
        return " ".join(replace_surrogates(typed).split()) if name_of is None else name_of(request.cookies) or ""

    def shown(reviewer: str, item: str, items: Sequence[str]) -> dict[str, Any]:
        done = sum(task.is_done(reviewer, each) for each in items) if reviewer else 0
        state = {"reviewer": reviewer, "items": len(items), "done": done, "finished": task.finished}
        if item not in items:
            return state
        return state | {"item": item, "number": items.index(item) + 1} | asdict(task.show(reviewer, item))

    @app.get("/")
    def page(request: Request) -> HTMLResponse:
        fields = [asdict(each) for each in task.fields]
        config = {"fields": fields, "names": list(task.names), "name": who(request, ""), "linked": name_of is not None,
                  "summary": task.summary_label if task.summary else "", "title": task.title}  # fmt: skip
        return HTMLResponse(render_page(task.title, config), headers={"cache-control": "no-store"})

    @app.get("/item")
    def item(request: Request, reviewer: str = "", item: str = "", go: str = "here") -> dict[str, Any]:
        """The item itself, or the `next`, `previous` or next `open` one after it; by its number with go=NUMBER."""
        with turn:
            name = who(request, reviewer)
            items = task.items(name)
            at = items.index(item) if item in items else -1
            if go.isdecimal():
                at = min(max(int(go), 1), len(items)) - 1
            elif go in ("next", "previous") and items:
                at = (at + (1 if go == "next" else -1)) % len(items) if at >= 0 else 0
            elif go == "open" or at < 0:
                order = [*range(at + 1, len(items)), *range(at + 1)]
                at = next((k for k in order if not task.is_done(name, items[k])), order[0] if order else -1)
            return shown(name, items[at] if 0 <= at < len(items) else "", items)

    @app.post("/save")
    def save(request: Request, given: Decision) -> dict[str, Any]:
        with turn:
            name = who(request, given.reviewer)
            try:
                if given.item not in task.items(name) or given.field not in {each.name for each in task.fields}:
                    raise BadInput(f"{given.item} is not to be decided about here.")
                said = task.save(name, given.item, given.field, given.value, given.seen)
            except (BadInput, OSError) as error:
                return {"error": str(error)}
            return {"said": said} | shown(name, given.item, task.items(name))

    @app.get("/picture/{number}")
    def picture(number: int, item: str) -> Response:
        try:
            if task.picture is None:
                raise HTTPException(404)
            kind, data = task.picture(item, number)
        except (ImageError, OSError, KeyError, IndexError) as error:
            raise HTTPException(404, str(error)) from None
        return Response(data, media_type=kind, headers={"cache-control": "no-store"})

    @app.get("/summary")
    def summary() -> dict[str, str]:
        return {"text": task.summary() if task.summary else ""}

    return app


def record_decision(journal: Path, reviewer: str, item: str, field: str, value: Any) -> str:
    """Add a decision; its time (UTC, ISO 8601) once it is on the disk. Raises BadInput without a name."""
    if not reviewer.strip():
        raise BadInput("Give your name first: every decision is recorded with who made it.")
    when = datetime.now(UTC).isoformat(timespec="milliseconds")
    with Journal(journal) as log:
        log.append({"when": when, "reviewer": reviewer, "item": item, "field": field, "value": value})
        log.sync()
    return when


def read_decisions(journal: Path) -> dict[tuple[str, str, str], Any]:
    """(item, field, reviewer) -> value of everything decided, in order; a later decision of the same replaces an earlier one."""
    return {(entry["item"], entry["field"], entry["reviewer"]): entry["value"] for entry in read_journal(journal)}


def encode_for_browser(data: bytes) -> tuple[str, bytes]:
    """(media type, bytes) of the picture that models are shown, in full resolution and without metadata: reviewers may be elsewhere."""
    shown = decode_image(strip_metadata(data)).encoded()
    return f"image/{'png' if shown.startswith(PNG_SIGNATURE) else 'jpeg'}", shown
