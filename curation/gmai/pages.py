"""The pages of a work folder: reviewers say what is wrong with each question, taggers give each label its task and department.

See also: the page (`review/page.py`), what follows from what is said (`checks.py`, `tags.py`).
"""

from __future__ import annotations

import json
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
from curation.review.page import Field, Shown, Task, build_page, record
from dataset_builders.errors import BadInput


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
    overlay, black = Overlay(**document["overlay"]), blackened(private)
    said = checks.read_faults(private)

    def show(reviewer: str, case: str) -> Shown:
        entry = cases[case]
        return Shown(
            question=entry["question"],
            values={checks.FIELD: list(said.get(case, {}).get(reviewer, ()))},
            heading=" › ".join(entry[name] for name in ("department", "modality", "task", "granularity")),
            options=[(text, at in entry["right"]) for at, text in enumerate(entry["options"])],
            pictures=[""] * len(entry["pictures"]),
        )

    def save(reviewer: str, case: str, field: str, value: Any, seen: Any) -> str:
        checks.record(private, reviewer, case, value)
        said.setdefault(case, {})[reviewer] = tuple(value)
        return "saved"

    def picture(case: str, number: int) -> tuple[str, bytes]:
        entry = cases[case]
        shown, mask = entry["pictures"][number]
        place = (private / PICTURES, entry["granularity"], entry["box"], overlay)
        return "image/png", shown_png(shown, mask, *place, black.get(shown, ()))

    faults = Field(
        checks.FIELD, "What is wrong?", "checks", [(name, text) for name, text in checks.FAULTS.items()], "1234",
        commit="save and go on (nothing ticked: fine)",
    )  # fmt: skip
    return build_page(
        Task(
            title="Validation",
            fields=[faults],
            items=lambda _: list(cases),
            show=show,
            save=save,
            is_done=lambda reviewer, case: reviewer in said.get(case, {}),
            picture=picture,
        )
    )


def build_tagging(out: Path, taggers: list[str]) -> FastAPI:
    """The page on which taggers give labels their task and department; each label goes to three of them."""
    private = out / "private"
    document = read_page_data(private)
    if len(taggers) < tags.TAGGERS:
        raise BadInput(
            f"--taggers: {len(taggers)} names; each label is tagged by three people. Give at least three names."
        )
    raw = {str(row["name"]): str(row["raw"]) for row in read_any(private / "labels.csv").to_dict("records")}
    shares = tags.assigned(list(raw), taggers, document["seed"])
    values = {subject: document[f"{subject}s"] for subject in tags.SUBJECTS}

    def own(tagger: str, label: str) -> dict[str, str]:
        votes = {(vote["label"], vote["tagger"]): vote for vote in tags.read_votes(None, private / tags.LOG)}
        return {subject: votes.get((label, tagger), {}).get(subject, "") for subject in tags.SUBJECTS}

    def save(tagger: str, label: str, subject: str, value: Any, seen: Any) -> str:
        if value not in values[subject]:
            raise BadInput(f"{value!r} is no {subject}.")
        record(private / tags.LOG, tagger, label, subject, value)
        return f"saved {subject}: {value}"

    return build_page(
        Task(
            title="Tags",
            fields=[Field(name, name.title(), "choice", [(each, each) for each in values[name]]) for name in values],
            items=lambda tagger: shares.get(tagger, []),
            show=lambda tagger, label: Shown(label, own(tagger, label), heading=f"in the sets: {raw[label]}"),
            save=save,
            is_done=lambda tagger, label: all(own(tagger, label).values()),
            names=taggers,
        )
    )
