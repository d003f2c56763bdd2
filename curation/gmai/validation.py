"""Collect judgements on a set: reviewers, what is wrong with each question, and taggers, the task and department of each label, on two
pages of a work folder.

See also: the page (`review/page.py`), what follows from tags (`label_table.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

import pandas as pd
from fastapi import FastAPI

from curation.gmai.items import PICTURES_FOLDER
from curation.gmai.label_table import TAG_SUBJECTS, TAGGERS_PER_LABEL, TAGS_FILE, assign_labels
from curation.gmai.overlay import blacked_out_boxes, render_png
from curation.gmai.selecting import QUESTIONS_FILE
from curation.gmai.sources import Overlay
from curation.images.image_table import read_dataframe
from curation.review.page import Field, ItemView, ReviewTask, build_page, read_decisions, record_decision
from curation.review.review_log import gwet_ac1
from dataset_builders.errors import BadInput

VALIDATION_LOG, FAULTS_FIELD = "validation.jsonl", "faults"
FAULTS = {
    "wrong": "the marked answer is wrong",
    "unclear": "the target is unclear",
    "poor": "the image is poor",
    "unseen": "answerable without the image",
}


Verdicts = dict[tuple[str, str, str], Any]
"""(case, `FIELD`, reviewer) -> faults found (none: the reviewer finds it fine). A reviewer's last word holds."""


def rejected_cases(said: Verdicts) -> dict[str, str]:
    """Case -> the first fault found, for cases that any reviewer objects to."""
    return {case: faults[0] for (case, _, _), faults in sorted(said.items(), reverse=True) if faults}


def validation_summary(said: Verdicts, asked: Set[str]) -> dict[str, Any]:
    """Verdicts, how many of the questions `asked` a person has checked, drops by fault, and the agreement of keep or drop (Gwet's AC1; None
    with fewer than two reviewers on a case)."""
    cases = {case for case, _, _ in said}
    is_fine = pd.Series({(case, reviewer): not faults for (case, _, reviewer), faults in said.items()})
    return {
        "validated": len(cases),
        "validated_questions": len(asked & cases),
        "reviewers": len({reviewer for _, _, reviewer in said}),
        "dropped": dict(Counter(rejected_cases(said).values())),
        "agreement_ac1": gwet_ac1(is_fine.unstack().to_numpy(object)) if said else None,
    }


# The pages


def read_page_data(private: Path) -> dict[str, Any]:
    """The last run's file for the pages. Raises BadInput if there was none."""
    if not (private / QUESTIONS_FILE).is_file():
        raise BadInput(
            f"{private.parent}: holds no questions. Make them with `medprobe curate gmai SOURCES --out {private.parent}`."
        )
    document: dict[str, Any] = json.loads((private / QUESTIONS_FILE).read_text(encoding="utf-8"))
    return document


def build_validation(out: Path) -> FastAPI:
    """The page on which reviewers go through the questions of a run, as one application."""
    private = out / "private"
    document = read_page_data(private)
    cases = {entry["case"]: entry for entry in document["cases"]}
    overlay, black = Overlay(**document["overlay"]), blacked_out_boxes(private)
    said: Verdicts = read_decisions(private / VALIDATION_LOG)

    def show(reviewer: str, case: str) -> ItemView:
        entry = cases[case]
        return ItemView(
            question=entry["question"],
            values={FAULTS_FIELD: said.get((case, FAULTS_FIELD, reviewer), [])},
            heading=" › ".join(entry[name] for name in ("department", "modality", "task", "granularity")),
            options=[(text, at in entry["right"]) for at, text in enumerate(entry["options"])],
            pictures=[""] * len(entry["pictures"]),
        )

    def save(reviewer: str, case: str, field: str, value: Any, seen: Any) -> str:
        if unknown := [fault for fault in value if fault not in FAULTS]:
            raise BadInput(f"{unknown[0]!r} is not a known fault; choose from {', '.join(FAULTS)}.")
        record_decision(private / VALIDATION_LOG, reviewer, case, FAULTS_FIELD, value)
        said[case, FAULTS_FIELD, reviewer] = value
        return "saved"

    def picture(case: str, number: int) -> tuple[str, bytes]:
        entry = cases[case]
        shown, mask = entry["pictures"][number]
        place = (private / PICTURES_FOLDER, entry["granularity"], entry["box"], overlay)
        return "image/png", render_png(shown, mask, *place, black.get(shown, ()))

    faults = Field(
        FAULTS_FIELD, "What is wrong?", "checks", list(FAULTS.items()), "1234",
        commit="save and go on (nothing ticked: fine)",
    )  # fmt: skip
    return build_page(
        ReviewTask(
            title="Validation",
            fields=[faults],
            items=lambda _: list(cases),
            show=show,
            save=save,
            is_done=lambda reviewer, case: (case, FAULTS_FIELD, reviewer) in said,
            picture=picture,
        )
    )


def build_tagging(out: Path, taggers: list[str]) -> FastAPI:
    """The page on which taggers give labels their task and department; each label goes to three of them."""
    private = out / "private"
    document = read_page_data(private)
    if len(taggers) < TAGGERS_PER_LABEL:
        raise BadInput(
            f"--taggers: {len(taggers)} names; each label is tagged by three people. Give at least three names."
        )
    raw = {str(row["name"]): str(row["raw"]) for row in read_dataframe(private / "labels.csv").to_dict("records")}
    shares = assign_labels(list(raw), taggers, document["seed"])
    values = {subject: document[f"{subject}s"] for subject in TAG_SUBJECTS}

    def own(tagger: str, label: str) -> dict[str, str]:
        votes = read_decisions(private / TAGS_FILE)
        return {subject: votes.get((label, subject, tagger), "") for subject in TAG_SUBJECTS}

    def save(tagger: str, label: str, subject: str, value: Any, seen: Any) -> str:
        if value not in values[subject]:
            raise BadInput(f"{value!r} is no {subject}.")
        record_decision(private / TAGS_FILE, tagger, label, subject, value)
        return f"saved {subject}: {value}"

    return build_page(
        ReviewTask(
            title="Tags",
            fields=[Field(name, name.title(), "choice", [(each, each) for each in values[name]]) for name in values],
            items=lambda tagger: shares.get(tagger, []),
            show=lambda tagger, label: ItemView(label, own(tagger, label), heading=f"in the sets: {raw[label]}"),
            save=save,
            is_done=lambda tagger, label: all(own(tagger, label).values()),
            names=taggers,
        )
    )
