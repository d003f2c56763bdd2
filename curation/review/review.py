"""Review of the pairs: the page, the append-only log of changes, decisions and agreement.

The page has two scores, three checks (yes or no), texts, categories and a note. Reviewers on this
machine type their names; reviewers on other machines have personal links
(`dataset_builders/browser_page/page.py`). The log has one line per change (who, when, which
pair, which field, value).

Scores and checks belong to each reviewer; texts and categories are shared, and the latest change
counts. A check (correctness, relevance, language) is "yes", "no" or not answered yet.

A score below 5 (MediConfusion leaves such problems out, section 2.3) or a "no" rejects the pair,
regardless of the other reviewers, and even if the review is incomplete. Any other pair is kept once
one reviewer has scored both problems and answered every check with "yes".

Agreement is measured by Krippendorff's alpha (ordinal) on scores, and by Gwet's AC1 on keep or
reject, for which alpha would be uninformative, since nearly everything is kept.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fastapi import FastAPI

from curation.images.image_table import table_rows
from curation.images.privacy import load_file_names
from curation.writing.asking import PROMPT_CATEGORIES
from curation.writing.captions import load_categories
from curation.writing.question_writing import REVIEWS_FILE, read_drafts
from dataset_builders.browser_page.page import (
    Field,
    ItemView,
    ReviewAccess,
    ReviewTask,
    build_page,
    encode_for_browser,
    record_decision,
)
from dataset_builders.errors import BadInput, replace_surrogates
from dataset_builders.files import read_journal
from eval_harness.scores.comparisons import krippendorff_alpha

SCORE_FIELDS = ("score_1", "score_2")
CHECK_FIELDS = ("correctness", "relevance", "language")
TEXT_FIELDS = ("question", "option_A", "option_B")
CATEGORY_FIELDS = ("categories_1", "categories_2")
REVIEWER_FIELDS = (*SCORE_FIELDS, *CHECK_FIELDS, "note")
"""Fields that each reviewer has separately; the others are shared."""
YES, NO = "yes", "no"
MIN_KEEP_SCORE = 5
WRONG_SCORE = 1
"""Score of a problem whose "correctness is violated in any form (e.g., irrelevant question,
incorrect answer)" (section 2.3)."""


@dataclass
class Review:
    """One reviewer's judgement of one pair; None for what has not been decided yet."""

    score_1: int | None = None
    score_2: int | None = None
    correctness: str | None = None
    relevance: str | None = None
    language: str | None = None
    note: str = ""

    @property
    def scores(self) -> list[int]:
        """Return the scores given so far."""
        return [score for score in (self.score_1, self.score_2) if score is not None]

    @property
    def checks(self) -> list[str | None]:
        """Return the answers to the checks, in the order of `CHECK_FIELDS`."""
        return [self.correctness, self.relevance, self.language]

    @property
    def rejects(self) -> bool:
        """Return True if a score or a check of this review excludes the pair."""
        return NO in self.checks or min(self.scores, default=MIN_KEEP_SCORE) < MIN_KEEP_SCORE

    @property
    def complete(self) -> bool:
        """Return True if both problems are scored and all checks answered (unless it rejects)."""
        return len(self.scores) == 2 and (self.rejects or self.checks.count(YES) == len(CHECK_FIELDS))


@dataclass
class Pair:
    """The current state of a pair: the draft with the reviewers' changes."""

    draft: dict[str, Any]
    question: str
    option_A: str
    option_B: str
    categories_1: list[str]
    categories_2: list[str]
    reviews: dict[str, Review] = field(default_factory=dict)

    @property
    def decision(self) -> str:
        """Return the state of the pair: kept, rejected (by any reviewer) or unreviewed."""
        reviews = self.reviews.values()
        if any(review.rejects for review in reviews):
            return "rejected"
        return "kept" if any(review.complete for review in reviews) else "unreviewed"


class ReviewLog:
    """The pairs of a questions folder with all reviews so far.

    The class is thread-safe, but only one process may use a folder at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drafts = read_drafts(folder)
        categories, files = load_categories(folder), load_file_names(folder)
        self.pairs: dict[str, Pair] = {
            row["pair_id"]: Pair(
                row | {side: files.get(row[side], row[side]) for side in ("image_1", "image_2")},
                row["question"],
                row["option_A"],
                row["option_B"],
                list(categories.get(row["image_1"], [])),
                list(categories.get(row["image_2"], [])),
            )
            for row in table_rows(self.drafts)
        }
        # The server calls this object from several threads.
        self._lock = threading.Lock()
        self._last_editor: dict[tuple[str, str], str] = {}
        for entry in read_journal(folder / REVIEWS_FILE):
            # Entries may be about pairs that are no longer drafted.
            if entry["item"] in self.pairs:
                self._apply(entry["reviewer"], entry["item"], entry["field"], entry["value"])

    def change(
        self,
        reviewer: str,
        pair_id: str,
        name: str,
        value: Any,
        seen: Any,
    ) -> str | None:
        """Record one change.

        Args:
            reviewer: name of the reviewer.
            pair_id: the pair.
            name: name of the field.
            value: its new value.
            seen: the value of a shared field that the reviewer's page showed before.

        Returns:
            The time (UTC, ISO 8601) once the change is on disk; None if nothing changed.

        Raises:
            BadInput: the field cannot have this value, or another reviewer has changed a shared
                field in the meantime, whose text would be overwritten unread. Nothing is recorded
                then.
        """
        with self._lock:
            value = _validate_value(self.pairs[pair_id], name, value)
            current = self.value(reviewer, pair_id, name)
            # If a shared text equals what the reviewer saw, the reviewer has not edited it.
            if value == current or (name not in REVIEWER_FIELDS and value == seen):
                return None
            if name not in REVIEWER_FIELDS and seen != current:
                editor = self._last_editor.get((pair_id, name), "another reviewer")
                raise BadInput(
                    f"{editor} changed {name.replace('_', ' ')} to {current!r} meanwhile. "
                    "Copy your text, reload the pair, then edit it again."
                )
            when = record_decision(self.folder / REVIEWS_FILE, reviewer, pair_id, name, value)
            self._apply(reviewer, pair_id, name, value)
        return when

    def value(self, reviewer: str, pair_id: str, name: str) -> Any:
        """Return the current value of a field.

        Args:
            reviewer: name of the reviewer, for fields that each reviewer has separately.
            pair_id: the pair.
            name: name of the field.
        """
        pair = self.pairs[pair_id]
        return getattr(
            pair.reviews.get(reviewer, Review()) if name in REVIEWER_FIELDS else pair,
            name,
        )

    def _apply(self, reviewer: str, pair_id: str, name: str, value: Any) -> None:
        pair = self.pairs[pair_id]
        if name in REVIEWER_FIELDS:
            setattr(pair.reviews.setdefault(reviewer, Review()), name, value)
        else:
            setattr(pair, name, value)
            self._last_editor[pair_id, name] = reviewer

    def is_done(self, reviewer: str, pair_id: str) -> bool:
        """Return True if this reviewer has scored and checked a pair."""
        return self.pairs[pair_id].reviews.get(reviewer, Review()).complete

    def scores(self) -> pd.DataFrame:
        """Tabulate the scores, one row per reviewer and problem.

        Returns:
            Columns reviewer, problem (`<pair>-1`, `<pair>-2`), pair_id, score, and keeps (True if
            the review would keep the pair; None while it is incomplete).
        """
        rows = [
            {
                "reviewer": reviewer,
                "problem": f"{pair_id}-{number}",
                "pair_id": pair_id,
                "score": score,
                "keeps": not review.rejects if review.complete else None,
            }
            for pair_id, pair in self.pairs.items()
            for reviewer, review in pair.reviews.items()
            for number, score in ((1, review.score_1), (2, review.score_2))
            if score is not None
        ]
        return pd.DataFrame(rows, columns=["reviewer", "problem", "pair_id", "score", "keeps"])


def _validate_value(pair: Pair, name: str, value: Any) -> Any:
    """Return the value as it is stored. Raises BadInput if it is not a valid value of the field."""
    if name in SCORE_FIELDS:
        if value is not None and not (str(value).isdecimal() and 1 <= int(value) <= 10):
            raise BadInput(f"{name} {value}: give an integer from 1 to 10.")
        return None if value is None else int(value)
    if name in CHECK_FIELDS:
        if value not in (YES, NO, None):
            raise BadInput(f"{name} {value}: answer {YES} or {NO}.")
        return value
    if name == "note":
        return replace_surrogates(str(value or "")).strip()
    if name in CATEGORY_FIELDS:
        return list(dict.fromkeys(replace_surrogates(category).strip() for category in value or [] if category.strip()))
    text = " ".join(replace_surrogates(str(value or "")).split())
    if not text:
        raise BadInput(f"{name}: cannot be empty.")
    other_option = {"option_A": pair.option_B, "option_B": pair.option_A}.get(name)
    if other_option is not None and text.casefold() == other_option.casefold():
        raise BadInput(f"{name}: reads the same as the other option.")
    return text


@dataclass(frozen=True)
class Agreement:
    """Agreement between reviewers.

    Attributes:
        problems_shared: number of problems with scores of two or more reviewers.
        alpha: Krippendorff's alpha of the scores; None if no problem is shared or all scores are
            equal.
        ac1: Gwet's AC1 of keep or reject; None if no pair has two complete reviews.
    """

    reviewers: int
    problems_shared: int
    alpha: float | None
    ac1: float | None


def compute_agreement(scores: pd.DataFrame) -> Agreement:
    """Compute the agreement between reviewers.

    Args:
        scores: columns reviewer, problem, pair_id, score, keeps (as `ReviewLog.scores`).
    """
    table = scores.pivot(index="problem", columns="reviewer", values="score") if len(scores) else pd.DataFrame()
    # Agreement needs at least one problem that two reviewers have scored.
    shared = int((table.notna().sum(axis=1) > 1).sum()) if len(table) else 0
    if not shared:
        return Agreement(table.shape[1], 0, None, None)
    alpha = krippendorff_alpha(table.to_numpy(float).T, "ordinal")
    keeps = scores.drop_duplicates(
        ["reviewer", "pair_id"],
    ).pivot(index="pair_id", columns="reviewer", values="keeps")
    return Agreement(table.shape[1], shared, alpha, gwet_ac1(keeps.to_numpy(dtype=object)))


def gwet_ac1(ratings: np.ndarray) -> float | None:
    """Compute Gwet's AC1 (2008) for two categories and any number of raters.

    AC1 = (pa - pe) / (1 - pe). Here pa is the share of pairs of raters who agree, averaged over the
    items with two or more ratings, and pe = 2 p (1 - p), where p is the mean share of True.

    Args:
        ratings: shape (items, raters); True, False, or missing (None, NaN).

    Returns:
        At most 1; None if no item has two ratings.
    """
    is_rated = ~pd.isna(ratings)
    yes_counts = np.where(is_rated, ratings, False).astype(bool).sum(1)
    rater_counts = is_rated.sum(1)
    is_shared = rater_counts > 1
    if not is_shared.any():
        return None
    n, k = rater_counts[is_shared], yes_counts[is_shared]
    observed = ((k * (k - 1) + (n - k) * (n - k - 1)) / (n * (n - 1))).mean()
    share = (yes_counts[rater_counts > 0] / rater_counts[rater_counts > 0]).mean()
    expected = 2 * share * (1 - share)
    return float((observed - expected) / (1 - expected))


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
