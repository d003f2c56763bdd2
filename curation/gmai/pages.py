"""The pages of a work folder: reviewers say what is wrong with each question, taggers give each label its task and department.

See also: what follows from it (`checks.py`, `tags.py`), the page itself (`review/form_page.py`).
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from curation.gmai import checks, tags
from curation.gmai.burned_in import blackened
from curation.gmai.items import PICTURES
from curation.gmai.overlay import shown_png
from curation.gmai.selecting import CASES
from curation.gmai.sources import Overlay
from curation.images.image_table import read_any
from curation.review.form_page import Decisions, choice, form_app
from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS


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
    """The page on which reviewers go through the questions of a run."""
    private = out / "private"
    document = read_page_data(private)
    cases = {entry["case"]: entry for entry in document["cases"]}
    overlay, black = Overlay(**document["overlay"]), blackened(private)
    ids, faults = list(cases), list(checks.FAULTS.items())

    def picture(case: str, number: int) -> bytes:
        own = cases[case]
        shown, mask = own["pictures"][number]
        place = (private / PICTURES, own["granularity"], own["box"], overlay)
        return shown_png(shown, mask, *place, black.get(shown, ()))

    def question(reviewer: str, case: str) -> str:
        said = checks.read_faults(private).get(case, {}).get(reviewer, ())
        return _question(cases[case]) + choice("checkbox", "fault", faults, said, "What is wrong? Nothing ticked: fine")

    def save(reviewer: str, case: str, fields: dict[str, list[str]]) -> None:
        if case not in cases:
            raise BadInput(f"there is no question {case!r}.")
        checks.record(private, reviewer, case, fields.get("fault", []))

    return form_app(
        Decisions(
            "Validation", lambda reviewer: ids, lambda reviewer, case: reviewer in checks.read_faults(private).get(case, {}),
            question, lambda case: len(cases[case]["pictures"]), picture, save,
        )
    )  # fmt: skip


def _question(entry: dict[str, Any]) -> str:
    options = ""
    for at, text in enumerate(entry["options"]):
        kind, mark = ("right", " (right)") if at in entry["right"] else ("", "")
        options += f'<li class="{kind}">{LETTERS[at]}. {escape(text)}{mark}</li>'
    branch = " &rsaquo; ".join(escape(entry[name]) for name in ("department", "modality", "task", "granularity"))
    return f"<p>{branch}</p><p><b>{escape(entry['question'])}</b></p><ul>{options}</ul>"


def build_tagging(out: Path, taggers: list[str]) -> FastAPI:
    """The page on which taggers give labels their task and department; each label goes to three of them."""
    private = out / "private"
    document = read_page_data(private)
    if len(taggers) < tags.TAGGERS:
        raise BadInput(
            f"--taggers: {len(taggers)} names; each label is tagged by three people. Give at least three names."
        )
    raw = {str(row["name"]): str(row["raw"]) for row in read_any(private / "labels.csv").to_dict("records")}
    shares = tags.assigned(raw, taggers, document["seed"])
    subjects = {"task": document["tasks"], "department": document["departments"]}

    def said(tagger: str, label: str) -> dict[str, str]:
        votes = {(v["label"], v["tagger"]): v for v in tags.read_votes(None, private / tags.LOG)}
        return votes.get((label, tagger), {})

    def question(tagger: str, label: str) -> str:
        chosen = said(tagger, label)
        return f"<p><b>{escape(label)}</b> (in the sets: {escape(raw[label])})</p>" + "".join(
            choice("radio", name, [(value, value) for value in values], [chosen.get(name, "")], name.capitalize())
            for name, values in subjects.items()
        )

    def save(tagger: str, label: str, fields: dict[str, list[str]]) -> None:
        given = {name: value[0] for name, value in fields.items() if name in subjects and value[0] in subjects[name]}
        if label not in shares.get(tagger, ()) or not given:
            raise BadInput("choose a task or a department.")
        for subject, value in given.items():
            tags.vote(private, tagger, label, subject, value)

    return form_app(
        Decisions(
            "Tags", lambda tagger: shares.get(tagger, []), lambda tagger, label: all(map(said(tagger, label).get, subjects)),
            question, lambda label: 0, lambda label, number: b"", save, reviewers=tuple(taggers),
        )
    )  # fmt: skip
