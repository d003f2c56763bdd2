"""Answers against the key: which question was right, under which sample. The basis of every metric.

See also: reading a response (`derive/reading.py`), the metrics (one module per benchmark).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput
from eval_harness.records.result import STATUSES
from eval_harness.scores.nonresponse import (
    LOST_STATUSES,
    NONRESPONSE_STATUSES,
    RESPONSE_COUNT_COLUMNS,
    UNSETTLED_COLUMN,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
ResponseEnds = tuple[Ints, Floats]
"""Of units: the numbers `nonresponse.COUNTS` (U, 5), and the share of samples in which one of its responses is lost (U,)."""


@dataclass(frozen=True)
class Graded:
    """Q questions with a known key x S samples.

    `family`: the benchmark whose format they have. `questions` has Q rows (index 0..Q-1), `columns` its ids and facets as arrays. `right`,
    `answered`, `refused`, `irrelevant`, `lost` (no behaviour of the model) are (Q, S); `ends` (Q, 5) are the numbers `nonresponse.COUNTS`
    of each question; `picks` (Q, S) counts the options chosen, `right_picks` those of them that are true, `first` is the first option
    chosen or -1. `k` options and `true` keys per question; `guess` is the probability that a uniform guess is right. `case`, `cluster` (Q,)
    number the cases and the connected components of cases that share an image.
    """

    family: str
    questions: pd.DataFrame
    columns: dict[str, NDArray[np.object_]]
    right: Bools
    answered: Bools
    refused: Bools
    irrelevant: Bools
    lost: Bools
    ends: Ints
    picks: Ints
    right_picks: Ints
    first: Ints
    k: Ints
    true: Ints
    guess: Floats
    multiple: Bools
    case: Ints
    cluster: Ints

    @property
    def samples(self) -> int:
        return int(self.right.shape[1])

    def ends_over(self, rows: Ints, starts: Ints) -> ResponseEnds:
        """How the responses of units of several questions ended; `rows` are one unit's after the other's, `starts` where each unit's
        begin."""
        if not len(starts):
            return self.ends[:0], np.zeros(0)
        lost = np.logical_or.reduceat(self.lost[rows], starts, axis=0)
        return np.add.reduceat(self.ends[rows], starts, axis=0), lost.mean(axis=1)


def grade(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> Graded:
    """Set answers (columns `question_id, sample, choice, status`) against the key of `questions`.

    Questions with a hidden answer are left out. An answer that is absent for one of the samples is `missing`.
    A choice counts only where the status is `answered`. Raises BadInput for an unknown format, an unknown question id, a duplicate
    (question_id, sample), a sample without a number, an unknown status, a choice outside the options, or a missing column.
    """
    if family not in FACETS_BY_BENCHMARK:
        raise BadInput(f"format {family!r}: unknown. Available: {', '.join(FACETS_BY_BENCHMARK)}.")
    _need(questions, ["question_id", "case_id", "options", "answer", "question_type"], "questions")
    _need(answers, ["question_id", "choice", "status"], "answers")
    keys = questions["answer"].tolist()
    known = _sizes(keys) > 0
    rows, column, samples = _row_indices(questions["question_id"], answers)
    shape = (len(questions), samples)
    right, picks, right_picks = np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    first, statuses = np.full(shape, -1, np.int64), np.full(shape, "missing", dtype=object)
    statuses[rows, column] = answers["status"].to_numpy(dtype=object)
    _check_statuses(answers)
    # The authors' ProbMed reader takes a response with both words as right for either key; ours never reads both.
    lenient = (questions["question_type"] == "yes_no").to_numpy(dtype=bool)
    for row, sample, choice in zip(rows.tolist(), column.tolist(), answers["choice"].tolist(), strict=True):
        size = _size(choice)
        if not size or statuses[row, sample] != "answered":
            continue
        first[row, sample] = choice[0]
        if size == 1 and len(keys[row] if known[row] else ()) == 1:
            hit = choice[0] == keys[row][0]
            right[row, sample], picks[row, sample], right_picks[row, sample] = hit, 1, hit
        elif known[row]:
            chosen, key = {int(option) for option in choice}, {int(option) for option in keys[row]}
            picks[row, sample], right_picks[row, sample] = len(chosen), len(chosen & key)
            right[row, sample] = chosen == key or (lenient[row] and key <= chosen)
    statuses[(statuses == "answered") & (first == -1)] = "irrelevant"  # an answer without a choice says nothing
    frame, status = questions[known].reset_index(drop=True), statuses[known]
    lost = np.isin(status.astype(str), LOST_STATUSES)
    k = _sizes(frame["options"].tolist())
    outside = (first[known] >= k[:, None]) | (first[known] < -1)
    if outside.any():
        wrong = frame["question_id"].iloc[int(np.argmax(outside.any(axis=1)))]
        raise BadInput(f"answers: the choice for {wrong!r} is not one of its options. Read the responses again.")
    multiple = (frame["question_type"] == "multiple").to_numpy(dtype=bool)
    return Graded(
        family=family,
        questions=frame,
        columns={
            name: frame[name].to_numpy(dtype=object)
            for name in ("question_id", "case_id", *(_source(facet) for facet in FACETS_BY_BENCHMARK[family]))
            if name in frame.columns
        },
        right=right[known],
        answered=picks[known] > 0,
        refused=status == "refused",
        irrelevant=status == "irrelevant",
        lost=lost,
        ends=np.stack(
            [np.full(len(frame), samples), *((status == reason).sum(axis=1) for reason in NONRESPONSE_STATUSES)], axis=1
        ).astype(np.int64),
        picks=picks[known],
        right_picks=right_picks[known],
        first=first[known],
        k=k,
        true=_sizes(frame["answer"].tolist()),
        guess=np.where(multiple, 1.0 / np.maximum(2.0**k - 1, 1), 1.0 / np.maximum(k, 1)),
        multiple=multiple,
        case=pd.factorize(frame["case_id"])[0].astype(np.int64),
        cluster=image_clusters(frame),
    )


def _check_statuses(answers: pd.DataFrame) -> None:
    unknown = ~answers["status"].isin(STATUSES).to_numpy()
    if unknown.any():
        status, question = answers[["status", "question_id"]].iloc[int(np.argmax(unknown))]
        raise BadInput(f"answers: status {status!r} of {question!r} is unknown. Available: {', '.join(STATUSES)}.")


def _source(facet: str) -> str:
    """The column of the questions that a facet is read from."""
    return "categories" if facet == "category" else facet


def image_clusters(questions: pd.DataFrame) -> Ints:
    """The number of the connected component of cases sharing images or groups (patients), per question (Q,).

    MediConfusion uses one image in up to 14 pairs: its 176 pairs form 60 components. Without `image_id` and `group` every case is its own.
    """
    case = pd.factorize(questions["case_id"])[0]
    shared = [name for name in ("image_id", "group") if name in questions.columns]
    if not shared or not len(questions):
        return case.astype(np.int64)
    nodes = int(case.max()) + 1
    rows, columns = [], []
    for name in shared:
        values = question_image_ids(questions) if name == "image_id" else questions[name].reset_index(drop=True)
        held, names = pd.factorize(values)
        rows.append(case[values.index[held >= 0]])
        columns.append(nodes + held[held >= 0])
        nodes += len(names)
    row, column = np.concatenate(rows), np.concatenate(columns)
    links = coo_array((np.ones(len(row)), (row, column)), shape=(nodes, nodes))
    label = connected_components(links, directed=False)[1]
    return label[case].astype(np.int64)


def question_image_ids(questions: pd.DataFrame) -> pd.Series:
    """The ids of the images that each question shows: a value per question and image, under the question's position as index."""
    first = questions["image_id"].reset_index(drop=True)
    if "more_image_ids" not in questions.columns:
        return first
    return pd.concat([first.astype(object), questions["more_image_ids"].reset_index(drop=True).explode().dropna()])


def _row_indices(question_ids: pd.Series, answers: pd.DataFrame) -> tuple[Ints, Ints, int]:
    """Row and sample column of each answer, and the number of samples."""
    index = pd.Index(question_ids.astype(str))
    if not index.is_unique:
        raise BadInput(f"questions: the id {index[index.duplicated()][0]!r} occurs twice. Rebuild the dataset.")
    rows = index.get_indexer(pd.Index(answers["question_id"].astype(str)))
    if (rows < 0).any():
        unknown = answers["question_id"].iloc[int(np.argmin(rows))]
        raise BadInput(
            f"answers: {str(unknown)!r} is not a question of this benchmark. Check the benchmark, split and ids."
        )
    given = answers["sample"] if "sample" in answers.columns else pd.Series(0, index=answers.index)
    column, names = pd.factorize(given, sort=True)
    if (column < 0).any():  # factorize gives -1 for "no number", which would land in the last sample
        unnumbered = answers["question_id"].iloc[int(np.argmin(column))]
        raise BadInput(
            f"answers: {unnumbered!r} has no sample number. Number the samples 0, 1, 2 ..., or leave them all out."
        )
    samples = max(len(names), 1)
    flat = rows * samples + column
    if len(np.unique(flat)) != len(flat):
        duplicate = answers.loc[pd.Series(flat).duplicated().to_numpy(), "question_id"].iloc[0]
        raise BadInput(f"answers: {duplicate!r} is answered twice in one sample. Number the samples 0, 1, 2 ...")
    return rows.astype(np.int64), column.astype(np.int64), samples


def _size(value: object) -> int:
    """Length of a list column's cell; 0 for null."""
    return len(value) if isinstance(value, (list, tuple, np.ndarray)) else 0


def _sizes(cells: Sequence[object]) -> Ints:
    try:
        return np.fromiter(map(len, cells), np.int64, count=len(cells))  # type: ignore[arg-type]
    except TypeError:
        return np.fromiter(map(_size, cells), np.int64, count=len(cells))


def _need(frame: pd.DataFrame, columns: Sequence[str], name: str) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise BadInput(f"{name}: the column {', '.join(missing)} is missing.")


def make_units(
    graded: Graded,
    metric: str,
    rows: Ints,
    numerator: Floats,
    denominator: Floats | float = 1.0,
    chance: Floats | float = np.nan,
    unit: NDArray[np.object_] | None = None,
    count: Ints | int = 1,
    facets: Mapping[str, Sequence[object]] | None = None,
    ends: ResponseEnds | None = None,
) -> pd.DataFrame:
    """The units of one metric as a frame. `rows` (U,) is a question of each unit, from which case, cluster and facets are taken; where a
    unit is several questions, `ends` are theirs (`Graded.ends_over`)."""
    taken: dict[str, object] = {
        "metric": np.full(len(rows), metric, dtype=object),
        "unit": graded.columns["question_id"][rows] if unit is None else np.asarray(unit, dtype=object),
        "case_id": graded.columns["case_id"][rows],
    }
    for facet in FACETS_BY_BENCHMARK[graded.family]:
        if facets is not None and facet in facets:
            column = np.empty(len(rows), dtype=object)
            column[:] = facets[facet]
            taken[facet] = column
        else:
            source = graded.columns.get(_source(facet))
            taken[facet] = np.full(len(rows), None, dtype=object) if source is None else source[rows]
    numbers: dict[str, object] = {
        "case": graded.case[rows],
        "cluster": graded.cluster[rows],
        "numerator": np.asarray(numerator, dtype=float),
        "denominator": np.broadcast_to(np.asarray(denominator, dtype=float), len(rows)).copy(),
        "chance": np.broadcast_to(np.asarray(chance, dtype=float), len(rows)).copy(),
        "count": np.broadcast_to(np.asarray(count, dtype=np.int64), len(rows)).copy(),
    }
    counts, unsettled = (graded.ends[rows], graded.lost[rows].mean(axis=1)) if ends is None else ends
    numbers |= dict(zip(RESPONSE_COUNT_COLUMNS, counts.T, strict=True)) | {UNSETTLED_COLUMN: unsettled}
    # Object columns: nothing is gained from turning these few repeated strings into another type and back.
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in taken.items()} | numbers)
