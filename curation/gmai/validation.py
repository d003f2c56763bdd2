"""Pages on which people review a benchmark.

Reviewers mark what is wrong with each question; taggers set the task and department of each label.

See also: the page (`dataset_builders/browser_page/page.py`), how tags are used (`label_table.py`).
"""

import json
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

import pandas as pd
from fastapi import FastAPI

from curation.gmai.label_table import TAG_SUBJECTS, TAGGERS_PER_LABEL, TAGS_FILE, assign_labels
from curation.gmai.overlay import blacked_out_boxes, render_png
from curation.gmai.selecting import QUESTIONS_FILE
from curation.gmai.sources import Overlay
from curation.images.image_table import read_dataframe
from curation.review.review import gwet_ac1
from dataset_builders.browser_page.page import Field, ItemView, ReviewTask, build_page, read_decisions, record_decision
from dataset_builders.errors import BadInput

VALIDATION_LOG, FAULTS_FIELD = "validation.jsonl", "faults"
FAULTS = {
    "wrong": "the marked answer is wrong",
    "unclear": "the target is unclear",
    "poor": "the image is poor",
    "unseen": "answerable without the image",
}


Verdicts = dict[tuple[str, str, str], Any]
"""(case, `FAULTS_FIELD`, reviewer) -> faults (an empty list: the question is fine). A reviewer's
last verdict on a case counts.
"""


def rejected_cases(verdicts: Verdicts) -> dict[str, str]:
    """Return case -> first fault, for cases that any reviewer rejected."""
    return {case: faults[0] for (case, _, _), faults in sorted(verdicts.items(), reverse=True) if faults}


def validation_summary(verdicts: Verdicts, asked_cases: Set[str]) -> dict[str, Any]:
    """Summarise the reviewers' verdicts.

    Args:
        verdicts: faults per case and reviewer.
        asked_cases: cases that are questions of the current run.

    Returns:
        Counts, and the agreement on keep or drop (Gwet's AC1; None if no case has two reviewers).
    """
    cases = {case for case, _, _ in verdicts}
    is_fine = pd.Series({(case, reviewer): not faults for (case, _, reviewer), faults in verdicts.items()})
    return {
        "validated": len(cases),
        "validated_questions": len(asked_cases & cases),
        "reviewers": len({reviewer for _, _, reviewer in verdicts}),
        "dropped": dict(Counter(rejected_cases(verdicts).values())),
        "agreement_ac1": gwet_ac1(is_fine.unstack().to_numpy(object)) if verdicts else None,
    }


# The pages


def read_page_data(private: Path) -> dict[str, Any]:
    """Return the last run's questions file. Raises BadInput if there is none."""
    if not (private / QUESTIONS_FILE).is_file():
        raise BadInput(
            f"{private.parent}: has no questions. Make them with `medprobe curate gmai SOURCES --out {private.parent}`."
        )
    document: dict[str, Any] = json.loads((private / QUESTIONS_FILE).read_text(encoding="utf-8"))
    return document


def build_validation(out: Path) -> FastAPI:
    """Build the page on which reviewers validate the questions of a run."""
    private = out / "private"
    document = read_page_data(private)
    cases = {entry["case"]: entry for entry in document["cases"]}
    overlay, text_boxes = Overlay(**document["overlay"]), blacked_out_boxes(private)

    # The page is served by a single process, so the verdicts are read once and updated in `save`.
    verdicts: Verdicts = read_decisions(private / VALIDATION_LOG)

    def show(reviewer: str, case: str) -> ItemView:
        entry = cases[case]
        return ItemView(
            question=entry["question"],
            values={FAULTS_FIELD: verdicts.get((case, FAULTS_FIELD, reviewer), [])},
            heading=" › ".join(entry[name] for name in ("department", "modality", "task", "granularity")),
            options=[(text, at in entry["right"]) for at, text in enumerate(entry["options"])],
            pictures=[""] * len(entry["pictures"]),
        )

    def save(reviewer: str, case: str, field: str, value: Any, seen: Any) -> str:
        if unknown := [fault for fault in value if fault not in FAULTS]:
            raise BadInput(f"{unknown[0]!r} is not a known fault; choose from {', '.join(FAULTS)}.")
        record_decision(private / VALIDATION_LOG, reviewer, case, FAULTS_FIELD, value)
        verdicts[case, FAULTS_FIELD, reviewer] = value
        return "saved"

    def picture(case: str, number: int) -> tuple[str, bytes]:
        entry = cases[case]
        picture_hash, mask = entry["pictures"][number]
        png = render_png(private, picture_hash, mask, entry["granularity"], entry["box"], overlay, text_boxes)
        return "image/png", png

    faults = Field(
        FAULTS_FIELD, "What is wrong?", "checks", list(FAULTS.items()), "1234",
        commit="save and continue (nothing ticked: fine)",
    )  # fmt: skip
    return build_page(
        ReviewTask(
            title="Validation",
            fields=[faults],
            items=lambda _: list(cases),
            show=show,
            save=save,
            is_done=lambda reviewer, case: (case, FAULTS_FIELD, reviewer) in verdicts,
            picture=picture,
        )
    )


def build_tagging(out: Path, taggers: list[str]) -> FastAPI:
    """Build the page on which taggers set the task and department of labels.

    Args:
        out: work folder.
        taggers: names of the taggers; each label is assigned to three of them.

    Raises:
        BadInput: fewer than three taggers, or no questions.
    """
    private = out / "private"
    document = read_page_data(private)

    if len(taggers) < TAGGERS_PER_LABEL:
        raise BadInput(
            f"--taggers: got {len(taggers)} names; each label is tagged by three people. Give at least three names."
        )

    raw = {str(row["name"]): str(row["raw"]) for row in read_dataframe(private / "labels.csv").to_dict("records")}
    labels_of_tagger = assign_labels(list(raw), taggers, document["seed"])

    values = {subject: document[f"{subject}s"] for subject in TAG_SUBJECTS}

    def tagger_votes(tagger: str, label: str) -> dict[str, str]:
        votes = read_decisions(private / TAGS_FILE)
        return {subject: votes.get((label, subject, tagger), "") for subject in TAG_SUBJECTS}

    def save(tagger: str, label: str, subject: str, value: Any, seen: Any) -> str:
        if value not in values[subject]:
            raise BadInput(f"{value!r} is not a valid {subject}.")
        record_decision(private / TAGS_FILE, tagger, label, subject, value)
        return f"saved {subject}: {value}"

    return build_page(
        ReviewTask(
            title="Tags",
            fields=[
                Field(name, name.title(), "choice", [(choice, choice) for choice in values[name]]) for name in values
            ],
            items=lambda tagger: labels_of_tagger.get(tagger, []),
            show=lambda tagger, label: ItemView(
                label, tagger_votes(tagger, label), heading=f"in the sets: {raw[label]}"
            ),
            save=save,
            is_done=lambda tagger, label: all(tagger_votes(tagger, label).values()),
            names=taggers,
        )
    )
