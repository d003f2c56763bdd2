"""The pages of a work folder: reviewers say what is wrong with each question, taggers give each label its task and department. What a page
says is saved is on the disk.

See also: what follows from it (`checks.py`, `tags.py`).
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

from curation.gmai import checks, tags
from curation.gmai.burned_in import blackened
from curation.gmai.items import PICTURES
from curation.gmai.overlay import shown_png
from curation.gmai.selecting import CASES
from curation.gmai.sources import Overlay
from curation.images.image_table import read_any
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
    ids, black = list(cases), blackened(private)
    app = FastAPI()

    @app.get("/picture/{case}/{number}")
    def picture(case: str, number: int) -> Response:
        if case not in cases or not 0 <= number < len(cases[case]["pictures"]):
            raise HTTPException(404)
        own = cases[case]
        shown, mask = own["pictures"][number]
        data = shown_png(private / PICTURES, shown, own["granularity"], own["box"], mask, overlay, black.get(shown, ()))
        return Response(data, media_type="image/png")

    def progress(reviewer: str) -> str:
        said = checks.read_faults(private)
        done = sum(reviewer.strip() in said.get(case, {}) for case in ids)
        return saved(
            f"{reviewer.strip()}: {done} of {len(ids)} questions" if reviewer.strip() else "Give your name to begin."
        )

    def go(reviewer: str, number: float) -> list[Any]:
        at = min(max(int(number or 1), 1), len(ids))
        own = checks.read_faults(private).get(ids[at - 1], {}).get(reviewer.strip(), ())
        return [at, progress(reviewer), _question(cases[ids[at - 1]]), list(own)]

    def step(by: int) -> Callable[[str, float], list[Any]]:
        return lambda reviewer, number: go(reviewer, (int(number) - 1 + by) % len(ids) + 1)

    def give(reviewer: str, number: float, faults: list[str]) -> list[Any]:
        """Record what is ticked for this question and go to the next one without a verdict."""
        at = int(number) - 1
        try:
            if not 0 <= at < len(ids):
                raise BadInput(f"there is no question {number:g}.")
            checks.record(private, reviewer, ids[at], faults)
        except (BadInput, OSError) as error:
            return [gr.skip(), saved(f"NOT saved: {error}", failed=True), gr.skip(), gr.skip()]
        said = checks.read_faults(private)
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
            [(text, name) for name, text in checks.FAULTS.items()], label="What is wrong?", elem_id="faults"
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


def build_tagging(out: Path, taggers: list[str]) -> FastAPI:
    """The page on which taggers give labels their task and department; each label goes to three of them."""
    private = out / "private"
    document = read_page_data(private)
    if len(taggers) < tags.TAGGERS:
        raise BadInput(
            f"--taggers: {len(taggers)} names; each label is tagged by three people. Give at least three names."
        )
    names = list(dict.fromkeys(str(row["name"]) for row in read_any(private / "labels.csv").to_dict("records")))
    shares = tags.assigned(names, taggers, document["seed"])
    raw = {str(row["name"]): str(row["raw"]) for row in read_any(private / "labels.csv").to_dict("records")}

    def value(tagger: str, label: str, subject: str) -> str | None:
        votes = {(v["label"], v["tagger"]): v for v in tags.read_votes(None, private / tags.LOG)}
        return votes.get((label, tagger), {}).get(subject) or None

    def progress(tagger: str) -> str:
        votes = {
            (v["label"], v["tagger"])
            for v in tags.read_votes(None, private / tags.LOG)
            if v["task"] and v["department"]
        }
        done = sum((label, tagger) in votes for label in shares.get(tagger, []))
        return saved(
            f"{tagger}: {done} of {len(shares.get(tagger, []))} labels" if tagger else "Choose your name to begin."
        )

    def look(tagger: str, label: str) -> list[Any]:
        labels = shares.get(tagger, [])
        label = label if label in labels else next(iter(labels), "")
        return [
            gr.update(choices=labels, value=label or None), progress(tagger), _heading(label, raw),
            value(tagger, label, "task"), value(tagger, label, "department"),
        ]  # fmt: skip

    def give(subject: str) -> Callable[[str, str, str], str]:
        def save(tagger: str, label: str, chosen: str) -> str:
            try:
                tags.vote(private, tagger, label, subject, chosen)
            except (BadInput, OSError) as error:
                return saved(f"NOT saved: {error}", failed=True)
            return progress(tagger)

        return save

    def following(tagger: str, label: str) -> list[Any]:
        labels = shares.get(tagger, [])
        return look(tagger, labels[(labels.index(label) + 1) % len(labels)] if label in labels else "")

    with gr.Blocks(title="Tags") as page:
        with gr.Row():
            tagger = gr.Dropdown(taggers, label="Your name", value=None, elem_id="tagger", filterable=False)
            label = gr.Dropdown([], label="Label", elem_id="label", filterable=False)
            next_label = gr.Button("next", elem_id="next")
        status = gr.HTML(progress(""), elem_id="status")
        heading = gr.Textbox("", label="Label", interactive=False)
        task = gr.Radio(document["tasks"], label="Task", elem_id="task")
        department = gr.Radio(document["departments"], label="Department", elem_id="department")
        everything: list[Any] = [label, status, heading, task, department]
        turn = asyncio.Lock()
        for event in (tagger.input, label.input):
            event(in_turn(turn, look), [tagger, label], everything, **DIRECT)
        next_label.click(in_turn(turn, following), [tagger, label], everything, **DIRECT)
        task.input(in_turn(turn, give("task")), [tagger, label, task], status, **DIRECT)
        department.input(in_turn(turn, give("department")), [tagger, label, department], status, **DIRECT)
    return gr.mount_gradio_app(FastAPI(), page, path="/", css=STYLE, ssr_mode=False, footer_links=[])


def _heading(label: str, raw: dict[str, str]) -> str:
    return f"{label} (in the sets: {raw[label]})" if label in raw else ""
