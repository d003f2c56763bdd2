"""The page on which taggers give each label its task and department. What it says is saved is on the disk.

See also: what follows from it (`tags.py`), questions (`validation_page.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI

from curation.gmai.checks.validation_page import STYLE, read_page_data
from curation.gmai.labelling import tags
from curation.images.image_table import read_any
from curation.review.review_app import DIRECT, in_turn
from curation.review.review_page import saved
from dataset_builders.errors import BadInput


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
