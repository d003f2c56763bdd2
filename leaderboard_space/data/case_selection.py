"""Select and sort the cases of a set by words, labels, and which models got them wrong; find cases with the same images; read answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput
from dataset_builders.lexical_tree import UNLABELLED
from eval_harness.derive.metrics import OVERALL_METRICS
from eval_harness.derive.run_files import read_readings
from eval_harness.scores.grading import question_image_ids
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.unit_scores import Bools, Floats, Ints

SEARCHED_COLUMNS = ("question_id", "case_id", "question", "options", "categories", "department", "modality", "task", "keyword", "organ",
            "image_type", "scenario")  # fmt: skip
MAX_LABELS = 60
"""Maximum number of a facet's values that are offered as choices; more are found by searching."""


def correctness_metric(outcomes: Outcomes) -> str | None:
    """The score that defines correctness: over every question, not one aspect or scenario. None if every key is hidden."""
    name = OVERALL_METRICS.get(outcomes.family)
    return name if name in outcomes.metrics else next(iter(outcomes.metrics), None)


def case_shares(outcomes: Outcomes, keys: Sequence[str], metric: str | None = None) -> Floats:
    """How much of each case each of some results got right (K, C), by a score (the headline); NaN for a case that is not scored."""
    name = metric if metric in outcomes.metrics else correctness_metric(outcomes)
    cases = int(outcomes.case_of_question.max(initial=-1)) + 1
    if name is None or not keys:
        return np.full((len(keys), cases), np.nan)
    units, at = outcomes.metrics[name], outcomes.unit_index[name].case
    shares = np.empty((len(keys), cases))
    for row, key in enumerate(keys):
        top, base = units.run(outcomes.row_of[key])
        counted = base > 0
        total = np.bincount(at, counted, minlength=cases)
        right = np.bincount(at, top / np.where(counted, base, 1.0), minlength=cases)
        with np.errstate(invalid="ignore"):
            shares[row] = np.where(total > 0, right / np.maximum(total, 1), np.nan)
    return shares


def mean_case_shares(outcomes: Outcomes, keys: Sequence[str]) -> Floats:
    """How much of each case (C,) some results got right on average; NaN for a case that none is scored on."""
    return _mean_case_shares(outcomes, tuple(keys))


@cached(COMPUTING)
def _mean_case_shares(outcomes: Outcomes, keys: tuple[str, ...]) -> Floats:
    shares = case_shares(outcomes, keys)
    known = np.isfinite(shares).sum(axis=0)
    return np.where(known > 0, np.nan_to_num(shares).sum(axis=0) / np.maximum(known, 1), np.nan)


def cases_with_words(outcomes: Outcomes, wanted: str) -> Bools:
    """The cases (C,) of which any question has every word in its text, id, options or labels."""
    questions = outcomes.questions
    mask = np.ones(len(questions), dtype=bool)
    if wanted.strip():
        columns = [name for name in SEARCHED_COLUMNS if name in questions.columns]
        haystack = questions[columns].fillna("").map(str).agg(" ".join, axis=1).str.lower()
        for word in wanted.lower().split():
            mask &= haystack.str.contains(word, regex=False).to_numpy(dtype=bool)
    return cases_of_questions(outcomes, mask)


def cases_with_label(outcomes: Outcomes, facet: str, label: str) -> Bools:
    """The cases (C,) of which any question has a label."""
    mask = np.zeros(len(outcomes.questions), dtype=bool)
    rows = outcomes.rows_by_label(facet).get(label)
    if rows is not None:
        mask[rows] = True
    return cases_of_questions(outcomes, mask)


def label_choices(outcomes: Outcomes) -> list[tuple[str, str, int]]:
    """(facet, label, how many cases) of the facets that have few enough values to choose from; the largest first within a facet."""
    found = []
    for facet in FACETS_BY_BENCHMARK.get(outcomes.family, ()):
        values = {label: rows for label, rows in outcomes.rows_by_label(facet).items() if label != UNLABELLED}
        if 1 < len(values) <= MAX_LABELS:
            sizes = {label: len(np.unique(outcomes.case_of_question[rows])) for label, rows in values.items()}
            found += [(facet, label, size) for label, size in sorted(sizes.items(), key=lambda one: (-one[1], one[0]))]
    return found


def sort_cases(cases: Ints, mean: Floats, order: str) -> Ints:
    """Cases by number: as stored; `wrong`, where least was right on average (C,) first; `split`, where results differ most first. What is
    not scored comes last."""
    if order == "stored" or not cases.size or not mean.size:
        return cases
    rate = np.where(np.isfinite(mean), mean if order == "wrong" else np.abs(mean - 0.5), 2.0)[cases]
    return cases[np.argsort(rate, kind="stable")]


def cases_sharing_images(outcomes: Outcomes, case: int) -> Ints:
    """The other cases that hold an image of this one."""
    if "image_id" not in outcomes.questions.columns:
        return np.zeros(0, np.int64)
    images = question_image_ids(outcomes.questions)
    of_case = outcomes.case_of_question[images.index]
    found = np.unique(of_case[images.isin(images[of_case == case].dropna()).to_numpy(dtype=bool)])
    return found[found != case]


def cases_of_questions(outcomes: Outcomes, questions: Bools) -> Bools:
    """The cases (C,) of some questions (Q,)."""
    cases = int(outcomes.case_of_question.max(initial=-1)) + 1
    return np.bincount(outcomes.case_of_question, questions, minlength=cases) > 0


Answer = tuple[list[int], str, str]
"""The options chosen, the status, and the response."""
NO_ANSWER: Answer = ([], "no answer", "")


def read_shown_images(entry: Entry, question_ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the images of another case that each of a few questions was shown. Raises BadInput if the file cannot be read."""
    try:
        assert entry.answers is not None
        wanted = pc.field("question_id").isin(list(question_ids))
        table = pq.read_table(entry.answers, columns=["question_id", "shown"], filters=wanted)
        return {
            name: shown or [] for name, shown in zip(*(column.to_pylist() for column in table.columns), strict=True)
        }
    except Exception as error:  # one damaged file is one line on the page
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None


def read_case_answers(entry: Entry, question_ids: Sequence[str]) -> dict[str, Answer]:
    """The first sample's answer to each of a few questions; questions without one are missing.

    Reads just these from the files: a page shows a few questions of many runs, whose whole answers would not stay in memory together.
    Raises BadInput if the files cannot be read.
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
    except Exception as error:  # as above
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None
