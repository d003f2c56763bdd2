"""The review page for pairs: two scores, three checks (yes or no), texts, categories and a note.

`review_log.py` decides from them which pairs are kept. Reviewers on this machine type their names;
reviewers on other machines have personal links (`dataset_builders/browser_page/page_server.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI

from curation.review.review_log import (
    CATEGORY_FIELDS,
    CHECK_FIELDS,
    MIN_KEEP_SCORE,
    NO,
    SCORE_FIELDS,
    TEXT_FIELDS,
    WRONG_SCORE,
    YES,
    ReviewLog,
    compute_agreement,
)
from curation.writing.paper_prompts import PROMPT_CATEGORIES
from dataset_builders.browser_page.page import Field, ItemView, ReviewTask, build_page, encode_for_browser
from dataset_builders.browser_page.page_server import ReviewAccess
from dataset_builders.errors import BadInput

SCORE_HELP = f"{WRONG_SCORE}: wrong or irrelevant; {MIN_KEEP_SCORE} or more: good enough to keep"
PAIR_SIDES = ("left", "right")


def build_review(questions: Path, images: Path, access: ReviewAccess | None = None) -> FastAPI:
    """Build the page and its pictures as one application.

    Args:
        questions: questions folder.
        images: folder of the images that were embedded.
        access: the reviewers' links; without it, reviewers type their names.

    Raises:
        BadInput: the questions folder has no drafts, or images are missing.
    """
    log = ReviewLog(questions)
    if not log.pairs:
        raise BadInput(
            f"{questions}: contains no drafts to review. Have some written with `medprobe curate write`.",
        )
    draft_images = [pair.draft[side] for pair in log.pairs.values() for side in ("image_1", "image_2")]
    # Fail now rather than in the middle of a review.
    missing = [image for image in draft_images if not (images / image).is_file()]
    if missing:
        raise BadInput(
            f"--images {images}: {missing[0]} and {len(missing) - 1} more images do not exist. "
            "Give the folder that was embedded."
        )
    fields = _review_fields(log)

    def show(reviewer: str, pair_id: str) -> ItemView:
        pair = log.pairs[pair_id]
        correct_letters = [pair.draft[f"correct_{number}"] for number in (1, 2)]
        return ItemView(
            question=pair.question,
            values={field.name: log.value(reviewer, pair_id, field.name) for field in fields},
            heading=f"pair {pair_id}",
            # Neither option is marked as correct, since each is correct for one of the two images.
            options=[(pair.option_A, False), (pair.option_B, False)],
            pictures=[f"Right here: {letter}: {getattr(pair, f'option_{letter}')}" for letter in correct_letters],
            details=f"Left: {pair.draft['caption_1']}\nRight: {pair.draft['caption_2']}",
        )

    def save(reviewer: str, pair_id: str, name: str, value: Any, seen: Any) -> str:
        # `when` is None if the value was the same.
        when = log.change(reviewer, pair_id, name, value, seen)
        target = f"{pair_id} {name.replace('_', ' ')}"
        return f"saved {target} at {when[11:19]} UTC" if when else f"nothing changed in {target}"

    def picture(pair_id: str, number: int) -> tuple[str, bytes]:
        return encode_for_browser(
            (images / log.pairs[pair_id].draft[f"image_{number + 1}"]).read_bytes(),
        )

    task = ReviewTask(
        title="Review",
        fields=fields,
        items=lambda _: list(log.pairs),
        show=show,
        save=save,
        is_done=log.is_done,
        picture=picture,
        summary=lambda: format_agreement(log),
        summary_label="agreement between reviewers",
    )
    return build_page(task, access.reviewer if access else None)


def _review_fields(log: ReviewLog) -> list[Field]:
    """List the fields of a pair: scores, checks, texts, categories and a note."""
    # Key 0 stands for the score 10.
    digits = [str((score + 1) % 10) for score in range(10)]
    scale = [(str(score), str(score)) for score in range(1, 11)]
    assigned = {name for pair in log.pairs.values() for name in (*pair.categories_1, *pair.categories_2)}
    suggestions = [(name, name) for name in sorted({*PROMPT_CATEGORIES, *assigned})]
    return [
        Field(
            SCORE_FIELDS[0],
            "Score of the left problem",
            "choice",
            scale,
            digits,
            f"{SCORE_HELP}. Keys: 1 to 9, 0",
        ),
        Field(
            SCORE_FIELDS[1],
            "Score of the right problem",
            "choice",
            scale,
            [f"Shift+{digit}" for digit in digits],
            "Keys: with Shift",
        ),
        *(
            Field(
                name,
                f"Is the {name} fine? 'No' excludes the pair",
                "choice",
                [(YES, YES), (NO, NO)],
                [key, key.upper()],
            )
            for name, key in zip(CHECK_FIELDS, "xvl", strict=True)
        ),
        *(Field(name, name.replace("_", " "), "text", keys=key) for name, key in zip(TEXT_FIELDS, "eab", strict=True)),
        *(
            Field(name, f"categories, {side}", "list", suggestions)
            for name, side in zip(CATEGORY_FIELDS, PAIR_SIDES, strict=True)
        ),
        Field("note", "note", "text"),
    ]


def format_agreement(log: ReviewLog) -> str:
    """Format the agreement between the reviewers as lines of text."""
    agreement = compute_agreement(log.scores())
    if agreement.problems_shared == 0:
        return "No problem has scores of two reviewers yet."
    lines = [
        f"{agreement.reviewers} reviewers, {agreement.problems_shared} problems scored by more than one.",
    ]
    if agreement.alpha is not None:
        lines.append(f"Krippendorff's alpha (ordinal): {agreement.alpha:.3f}")
    if agreement.ac1 is not None:
        lines.append(f"Gwet's AC1, keep or reject: {agreement.ac1:.3f}")
    return "\n".join(lines)
