"""One page for every decision that a person makes item by item: images at the left, question and form at the right, both in sight. What the
page says is saved is on the disk. Plain forms: it works without a script; keys press the buttons that name one.

See also: who uses it (`gmai/pages.py`, `deidentify/review_texts.py`), serving (`serving.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from dataset_builders.errors import BadInput

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark }} body {{ font: 16px/1.45 system-ui, sans-serif; margin: 1rem auto; max-width: 90rem; padding: 0 1rem }}
main {{ display: grid; gap: 1.5rem }} @media (min-width: 60rem) {{ main {{ grid-template-columns: 3fr 2fr }} }}
img {{ max-width: 100%; max-height: 84vh; object-fit: contain; background: #000 }} li.right {{ font-weight: 700 }}
button, input, select {{ font: inherit; padding: .35rem .7rem }} label {{ display: block }}
fieldset {{ margin: .6rem 0; max-height: 34vh; overflow: auto }}
.failed {{ color: #b91c1c; font-weight: 600 }}</style></head><body><h1>{title}</h1>
<form method="get" action="."><label>Your name {names}</label> <button>go on</button></form>
<p role="status" class="{state}">{status}</p><main>{body}</main>
<script>document.addEventListener('keydown', e => {{ if (['INPUT', 'SELECT'].includes(e.target.tagName) || e.ctrlKey || e.metaKey) return;
  document.querySelector(`[accesskey="${{CSS.escape(e.key)}}"]`)?.click(); }});</script></body></html>"""
BUTTONS = '<p><button name="save" value="yes">save and go on</button></p>'


@dataclass(frozen=True)
class Decisions:
    """What a page asks, and what becomes of the answers."""

    title: str
    items: Callable[[str], Sequence[str]]
    """reviewer -> what they are asked about, in order"""
    is_done: Callable[[str, str], bool]
    """(reviewer, item)"""
    question: Callable[[str, str], str]
    """(reviewer, item) -> HTML: what is asked, and the fields"""
    images: Callable[[str], int]
    """How many images an item shows"""
    picture: Callable[[str, int], bytes]
    """(item, number) -> PNG"""
    save: Callable[[str, str, dict[str, list[str]]], None]
    """(reviewer, item, fields). Raises BadInput."""
    buttons: str = BUTTONS
    reviewers: tuple[str, ...] = ()
    """Who may answer; anybody where there is none."""


def form_app(ask: Decisions) -> FastAPI:
    """The page as an application."""
    app = FastAPI()

    def page(reviewer: str, item: str, failed: str = "") -> HTMLResponse:
        items = list(ask.items(reviewer))
        is_open = [name for name in items if not ask.is_done(reviewer, name)]
        item = item if item in items else next(iter(is_open or items), "")
        if ask.reviewers:
            options = "".join(
                f"<option{' selected' * (name == reviewer)}>{escape(name)}</option>" for name in ("", *ask.reviewers)
            )
            names = f'<select name="reviewer" onchange="this.form.submit()">{options}</select>'
        else:
            names = f'<input name="reviewer" value="{escape(reviewer, quote=True)}" required>'
        status = f"NOT saved: {failed}" if failed else f"{len(items) - len(is_open)} of {len(items)} done"
        body = "<p>Nothing waits for a decision.</p>" if reviewer else "<p>Give your name to begin.</p>"
        if item and reviewer:
            at = items.index(item)
            steps = ((items[at - 1], "p", "previous"), (items[(at + 1) % len(items)], "n", "next"))
            links = " ".join(
                f'<a accesskey="{key}" href="?{escape(urlencode({"reviewer": reviewer, "item": other}))}">{word}</a>'
                for other, key, word in steps
            )
            images = "".join(
                f'<img alt="image {number + 1}" src="picture/{escape(item, quote=True)}/{number}">'
                for number in range(ask.images(item))
            )
            hidden = "".join(
                f'<input type="hidden" name="{name}" value="{escape(value, quote=True)}">'
                for name, value in (("reviewer", reviewer), ("item", item))
            )
            body = (
                f"<div>{images}</div><div><p>{at + 1} of {len(items)} {links}</p>"
                f'<form method="post" action="save">{hidden}{ask.question(reviewer, item)}{ask.buttons}</form></div>'
            )
        state = "failed" if failed else ""
        text = PAGE.format(title=escape(ask.title), names=names, status=escape(status), state=state, body=body)
        return HTMLResponse(text, 409 if failed else 200)

    @app.get("/")
    def show(reviewer: str = "", item: str = "") -> HTMLResponse:
        return page(reviewer.strip(), item)

    @app.get("/picture/{item}/{number}")
    def picture(item: str, number: int) -> Response:
        try:
            data = ask.picture(item, number)
        except (KeyError, IndexError, OSError):
            raise HTTPException(404) from None
        return Response(data, media_type="image/png", headers={"cache-control": "no-store"})

    @app.post("/save")
    async def save(request: Request) -> Response:
        form = await request.form()
        fields = {name: [str(value) for value in form.getlist(name)] for name in form}
        reviewer, item = (fields.pop(name, [""])[0].strip() for name in ("reviewer", "item"))

        def saved() -> Response:
            try:
                if ask.reviewers and reviewer not in ask.reviewers:
                    raise BadInput("choose your name first: every answer is recorded with who gave it.")
                ask.save(reviewer, item, fields)
            except (BadInput, OSError) as error:
                return page(reviewer, item, str(error))
            items = list(ask.items(reviewer))
            after = items[items.index(item) + 1 :] if item in items else []
            following = next((name for name in (*after, *items) if not ask.is_done(reviewer, name)), item)
            return RedirectResponse(f".?{urlencode({'reviewer': reviewer, 'item': following})}", 303)

        return await run_in_threadpool(saved)

    return app


def choice(kind: str, name: str, options: Sequence[tuple[str, str]], chosen: Sequence[str], title: str) -> str:
    """A group of checkboxes or radio buttons. kind: `checkbox` or `radio`. options: (value, what is said)."""
    fields = "".join(
        f'<label><input type="{kind}" name="{name}" value="{escape(value, quote=True)}"{" checked" * (value in chosen)}> '
        f"{escape(text)}</label>"
        for value, text in options
    )
    return f"<fieldset><legend>{escape(title)}</legend>{fields}</fieldset>"
