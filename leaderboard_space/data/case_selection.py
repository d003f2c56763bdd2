"""Select and sort the cases of a question set by words, labels and model errors; read their
answers.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.benchmarks import facets_of
from dataset_builders.errors import BadInput
from dataset_builders.facets import UNLABELLED
from eval_harness.derive.metrics import OVERALL_METRICS
from eval_harness.derive.run_files import read_readings
from eval_harness.scores.grading import question_image_ids
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Bools, Floats, Ints, Outcomes
from leaderboard_space.data.store.sections import Entry

SEARCHED_COLUMNS = ("question_id", "case_id", "question", "options", "categories", "department", "modality", "task", "keyword", "organ",
            "image_type", "scenario")  # fmt: skip
MAX_LABELS = 60
"""Maximum number of values for which a facet is offered as a list of choices; otherwise it is
searchable only."""


def correctness_metric(outcomes: Outcomes) -> str | None:
    """Return the metric that defines a correct answer, over all questions; None if all answers are
    hidden.
    """
    name = OVERALL_METRICS.get(outcomes.family)
    return name if name in outcomes.metrics else next(iter(outcomes.metrics), None)


def case_shares(outcomes: Outcomes, keys: Sequence[str], metric: str | None = None) -> Floats:
    """Compute the share of each case that each result answered correctly.

    Args:
        outcomes: The aligned answers.
        keys: Entry keys of K results.
        metric: The metric that defines a correct answer; by default `correctness_metric`.

    Returns:
        (K, C) shares from 0 to 1; NaN for cases that are not scored.
    """
    name = metric if metric in outcomes.metrics else correctness_metric(outcomes)
    cases = int(outcomes.case_of_question.max(initial=-1)) + 1
    if name is None or not keys:
        return np.full((len(keys), cases), np.nan)
    units, at = outcomes.metrics[name], outcomes.unit_index[name].case
    shares = np.empty((len(keys), cases))
    for row, key in enumerate(keys):
        # A unit with denominator 0 does not count for this run.
        top, base = units.run(outcomes.row_of[key])
        counted = base > 0
        total = np.bincount(at, counted, minlength=cases)
        right = np.bincount(at, top / np.where(counted, base, 1.0), minlength=cases)
        with np.errstate(invalid="ignore"):
            shares[row] = np.where(total > 0, right / np.maximum(total, 1), np.nan)
    return shares


@cached(COMPUTING)
def mean_case_shares(outcomes: Outcomes, keys: tuple[str, ...]) -> Floats:
    """Compute the mean share of each case that the results `keys` answered correctly, cached.

    Returns:
        (C,) shares from 0 to 1; NaN for cases on which no result is scored.
    """
    shares = case_shares(outcomes, keys)
    scored_runs = np.isfinite(shares).sum(axis=0)
    return np.where(scored_runs > 0, np.nan_to_num(shares).sum(axis=0) / np.maximum(scored_runs, 1), np.nan)


def cases_with_words(outcomes: Outcomes, query: str) -> Bools:
    """Return the (C,) mask of cases with a question that contains every word of `query`.

    The search covers text, ids, options and labels (`SEARCHED_COLUMNS`).
    """
    questions = outcomes.questions
    mask = np.ones(len(questions), dtype=bool)
    if query.strip():
        columns = [name for name in SEARCHED_COLUMNS if name in questions.columns]
        haystack = questions[columns].fillna("").map(str).agg(" ".join, axis=1).str.lower()
        for word in query.lower().split():
            mask &= haystack.str.contains(word, regex=False).to_numpy(dtype=bool)
    return cases_of_questions(outcomes, mask)


def cases_with_label(outcomes: Outcomes, facet: str, label: str) -> Bools:
    """Return the (C,) mask of cases with a question that has the label."""
    mask = np.zeros(len(outcomes.questions), dtype=bool)
    rows = outcomes.rows_by_label(facet).get(label)
    if rows is not None:
        mask[rows] = True
    return cases_of_questions(outcomes, mask)


def label_choices(outcomes: Outcomes) -> list[tuple[str, str, int]]:
    """List the labels of facets with at most MAX_LABELS values.

    Returns:
        (facet, label, number of cases), the largest first within a facet.
    """
    choices = []
    for facet in facets_of(outcomes.family, outcomes.questions.columns):
        values = {label: rows for label, rows in outcomes.rows_by_label(facet).items() if label != UNLABELLED}
        if 1 < len(values) <= MAX_LABELS:
            sizes = {label: len(np.unique(outcomes.case_of_question[rows])) for label, rows in values.items()}
            choices += [
                (facet, label, size)
                for label, size in sorted(
                    sizes.items(), key=lambda label_and_size: (-label_and_size[1], label_and_size[0])
                )
            ]
    return choices


def sort_cases(cases: Ints, mean: Floats, order: str) -> Ints:
    """Sort case numbers.

    Args:
        cases: Case numbers.
        mean: (C,) mean share of correct answers per case, as `mean_case_shares` returns it.
        order: `stored`; `wrong`: lowest mean first; `split`: means nearest to one half first.

    Returns:
        The case numbers in that order; cases that are not scored come last.
    """
    if order == "stored" or not cases.size or not mean.size:
        return cases
    # 2.0 sorts cases without a score after all others.
    rate = np.where(np.isfinite(mean), mean if order == "wrong" else np.abs(mean - 0.5), 2.0)[cases]
    return cases[np.argsort(rate, kind="stable")]


def cases_sharing_images(outcomes: Outcomes, case: int) -> Ints:
    """Return the numbers of the other cases that share an image with a case."""
    if "image_id" not in outcomes.questions.columns:
        return np.zeros(0, np.int64)
    images = question_image_ids(outcomes.questions)
    case_of_image = outcomes.case_of_question[images.index]
    cases = np.unique(case_of_image[images.isin(images[case_of_image == case].dropna()).to_numpy(dtype=bool)])
    return cases[cases != case]


def cases_of_questions(outcomes: Outcomes, questions: Bools) -> Bools:
    """Return the (C,) mask of cases that have a question in the (Q,) mask `questions`."""
    cases = int(outcomes.case_of_question.max(initial=-1)) + 1
    return np.bincount(outcomes.case_of_question, questions, minlength=cases) > 0


Answer = tuple[list[int], str, str]
"""(chosen option indices, status, response text)."""
NO_ANSWER: Answer = ([], "no answer", "")


def read_shown_images(entry: Entry, question_ids: Sequence[str]) -> dict[str, list[str]]:
    """Read which images of another case were shown with each question (the swapped-image
    condition).

    Args:
        entry: The result whose answers to read.
        question_ids: The questions.

    Returns:
        Question id -> image ids.

    Raises:
        BadInput: If the answers file cannot be read.
    """
    try:
        assert entry.answers is not None
        is_requested = pc.field("question_id").isin(list(question_ids))
        table = pq.read_table(entry.answers, columns=["question_id", "shown"], filters=is_requested)
        return {
            name: image_ids or []
            for name, image_ids in zip(*(column.to_pylist() for column in table.columns), strict=True)
        }
    except Exception as error:  # a damaged file must cost one line of the page, not the page
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None


def read_case_answers(entry: Entry, question_ids: Sequence[str]) -> dict[str, Answer]:
    """Read the first sample's answer to each question.

    Only these rows are read: a page shows a few questions of many runs, whose full answers would
    not fit in memory.

    Args:
        entry: The result whose answers to read.
        question_ids: The questions.

    Returns:
        Question id -> answer; questions without an answer are missing.

    Raises:
        BadInput: If the answers file cannot be read.
    """
    try:
        assert entry.derived is not None
        table = read_readings(entry.derived, question_ids=question_ids)
        rows = table.sort_values("sample", kind="stable").drop_duplicates("question_id").to_dict("records")
        return {
            str(row["question_id"]): (
                [int(option) for option in row["choice"] or []],
                str(row["status"]),
                str(row["response"] or ""),
            )
            for row in rows
        }
    except Exception as error:  # as in `read_shown_images`
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None
