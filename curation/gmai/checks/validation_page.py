"""The page on which reviewers say what is wrong with each question. What it says is saved is on the disk.

See also: what follows from it (`validation.py`), tags (`tagging_page.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI, HTTPException, Response

from curation.gmai.asking.written import CASES
from curation.gmai.checks import validation
from curation.gmai.items import PICTURES
from curation.gmai.overlay import shown_png
from curation.gmai.sources import Overlay
from curation.review.review_app import DIRECT, in_turn
from curation.review.review_page import saved
from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS

STYLE = """
.shown img { height: 50vh; max-width: 100%; object-fit: contain; background: #000 }
.shown li.right { font-weight: 700 }
.saved { font-variant-numeric: tabular-nums } .not-saved { color: #b91c1c; font-weight: 600 }
"""


def read_page_data(private: Path) -> dict[str, Any]:
    """What the last run left for the pages. Raises BadInput where there was none."""
    path = private / CASES
    if not path.is_file():
        raise BadInput(
            f"{private.parent}: holds no questions. Make them with `medprobe curate gmai SOURCES --out {private.parent}`."
        )
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def build_validation(out: Path) -> FastAPI:
    """The page on which reviewers go through the questions of a run, as one application."""
    private = out / "private"
    document = read_page_data(private)
    cases = {entry["case"]: entry for entry in document["cases"]}
    overlay = Overlay(**document["overlay"])
    ids = list(cases)
    app = FastAPI()

    @app.get("/picture/{case}/{number}")
    def picture(case: str, number: int) -> Response:
        if case not in cases or not 0 <= number < len(cases[case]["pictures"]):
            raise HTTPException(404)
        own = cases[case]
        shown, mask = own["pictures"][number]
        data = shown_png(private / PICTURES, shown, own["granularity"], own["box"], mask, overlay)
        return Response(data, media_type="image/png")

    def progress(reviewer: str) -> str:
        said = validation.read_faults(private)
        done = sum(reviewer.strip() in said.get(case, {}) for case in ids)
        return saved(
            f"{reviewer.strip()}: {done} of {len(ids)} questions" if reviewer.strip() else "Give your name to begin."
        )

    def go(reviewer: str, number: float) -> list[Any]:
        at = min(max(int(number or 1), 1), len(ids))
        own = validation.read_faults(private).get(ids[at - 1], {}).get(reviewer.strip(), ())
        return [at, progress(reviewer), _question(cases[ids[at - 1]]), list(own)]

    def step(by: int) -> Callable[[str, float], list[Any]]:
        return lambda reviewer, number: go(reviewer, (int(number) - 1 + by) % len(ids) + 1)

    def give(reviewer: str, number: float, faults: list[str]) -> list[Any]:
        """Record what is ticked for this question and go to the next one without a verdict."""
        at = int(number) - 1
        try:
            if not 0 <= at < len(ids):
                raise BadInput(f"there is no question {number:g}.")
            validation.record(private, reviewer, ids[at], faults)
        except (BadInput, OSError) as error:
            return [gr.skip(), saved(f"NOT saved: {error}", failed=True), gr.skip(), gr.skip()]
        said = validation.read_faults(private)
        others = [*range(at + 1, len(ids)), *range(at)]
        return go(reviewer, next((k for k in others if reviewer.strip() not in said.get(ids[k], {})), at) + 1)

    with gr.Blocks(title="Validation") as page:
        with gr.Row():
            reviewer = gr.Textbox(label="Your name", elem_id="reviewer")
            number = gr.Number(1, label=f"Question (1 to {len(ids)})", precision=0, elem_id="number")
            previous, following = gr.Button("previous"), gr.Button("next")
        status = gr.HTML(progress(""), elem_id="status")
        shown = gr.HTML(_question(cases[ids[0]]), elem_id="shown")
        faults = gr.CheckboxGroup(
            [(text, name) for name, text in validation.FAULTS.items()], label="What is wrong?", elem_id="faults"
        )
        keep = gr.Button("save and go on (nothing ticked: fine)", variant="primary", elem_id="save")
        everything: list[Any] = [number, status, shown, faults]
        turn = asyncio.Lock()
        # Leaving a field sets back nothing that is ticked meanwhile: only the line of progress follows the name.
        reviewer.blur(in_turn(turn, progress), reviewer, status, **DIRECT)
        number.submit(in_turn(turn, go), [reviewer, number], everything, **DIRECT)
        previous.click(in_turn(turn, step(-1)), [reviewer, number], everything, **DIRECT)
        following.click(in_turn(turn, step(1)), [reviewer, number], everything, **DIRECT)
        keep.click(in_turn(turn, give), [reviewer, number, faults], everything, **DIRECT)
    return gr.mount_gradio_app(app, page, path="/", css=STYLE, ssr_mode=False, footer_links=[])


def _question(entry: dict[str, Any]) -> str:
    options = ""
    for at, text in enumerate(entry["options"]):
        kind, mark = ("right", " (right)") if at in entry["right"] else ("", "")
        options += f'<li class="{kind}">{LETTERS[at]}. {escape(text)}{mark}</li>'
    branch = " &rsaquo; ".join(escape(entry[name]) for name in ("department", "modality", "task", "granularity"))
    images = "".join(
        f'<img alt="image {number + 1} of the question" src="picture/{escape(entry["case"], quote=True)}/{number}">'
        for number in range(len(entry["pictures"]))
    )
    return (
        f'<div class="shown"><p>{branch}</p>{images}<p><b>{escape(entry["question"])}</b></p><ul>{options}</ul></div>'
    )
