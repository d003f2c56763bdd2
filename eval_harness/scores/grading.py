"""Grade answers against the key, per question and sample; every metric is based on this.

A score's verdict is withheld because of nonresponse by one rule, which every command and the board
use. A refusal and an unreadable answer are behaviour of the model and are scored as such. A
response that was cut off, failed or is missing is not: a verdict is given only if it is the same
with all of these lost responses counted right and with all counted wrong (a pair with a lost
response counts as a whole). If most responses contain no answer, for any of these reasons or
because they are unreadable, the value is withheld as well (a run's score, or the reason why it has
none: `derive/metrics.py`).

See also: reading a response (`derive/reading.py`), the metrics (one module per benchmark).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dataset_builders.benchmarks import FACETS_BY_BENCHMARK, facets_of
from dataset_builders.errors import BadInput
from eval_harness.records.result import STATUSES, Nonresponse, Score
from eval_harness.scores.intervals import Bools, Floats, Ints

LOST_STATUSES = ("truncated", "failed", "missing")
"""Statuses of a lost response, which says nothing about the model."""
NONRESPONSE_STATUSES = (*LOST_STATUSES, "irrelevant")
"""Statuses of a response that contains no answer, not even a refusal."""
RESPONSE_COUNT_COLUMNS = ("responses", *NONRESPONSE_STATUSES)
"""Columns of a unit: number of responses, and how many of them have each NONRESPONSE_STATUSES."""
UNSETTLED_COLUMN = "unsettled"
"""Column of a unit: the share of samples in which one of its responses is lost (LOST_STATUSES)."""
ResponseEnds = tuple[Ints, Floats]
"""How the responses of U units ended.

Counts (U, 5) in the order of RESPONSE_COUNT_COLUMNS, and the share of samples in
which a response of the unit is lost (U,).
"""


class RowGroups(NamedTuple):
    """Questions that are scored together, as slices of `order`.

    Attributes:
        order: Question rows, grouped by unit.
        starts: Index in `order` at which each unit begins (U,).
    """

    order: Ints
    starts: Ints

    @property
    def sizes(self) -> Ints:
        """Number of questions per unit (U,)."""
        return np.diff(np.r_[self.starts, len(self.order)])

    @property
    def first_rows(self) -> Ints:
        """Row of the first question of each unit (U,)."""
        return self.order[self.starts]

    def reduce(self, function: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """Combine the values of each unit's questions, (Q, ...) -> (U, ...)."""
        return function.reduceat(values[self.order], self.starts, axis=0)


@dataclass(frozen=True)
class Graded:
    """Graded answers of Q questions with a known key in S samples.

    Attributes:
        family: Benchmark whose question format the questions have.
        questions: The Q questions, index 0..Q-1.
        columns: Ids and facets of the questions as arrays (Q,).
        right: Whether the answer is correct (Q, S).
        answered: Whether an option was chosen (Q, S).
        refused: Whether the model declined to answer (Q, S).
        irrelevant: Whether no option could be read (Q, S).
        lost: Whether the response is truncated, failed or missing (Q, S).
        ends: Counts per question in the order of RESPONSE_COUNT_COLUMNS (Q, 5).
        picks: Number of options chosen (Q, S).
        right_picks: Number of chosen options that are correct (Q, S).
        first_choice: Position of the first option chosen, or -1 (Q, S).
        k: Number of options (Q,).
        true: Number of correct options (Q,).
        guess: Probability that a uniform guess is correct (Q,).
        multiple: Whether the question allows several answers (Q,).
        case: Number of the case (Q,).
        cluster: Number of the connected component of cases that share an image or a patient (Q,).
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
    first_choice: Ints
    k: Ints
    true: Ints
    guess: Floats
    multiple: Bools
    case: Ints
    cluster: Ints

    @property
    def samples(self) -> int:
        """Number of samples S per question."""
        return int(self.right.shape[1])

    def group_by_case(self, rows: Ints) -> RowGroups:
        """Group question rows by case, in ascending order of the cases' numbers."""
        order = rows[np.argsort(self.case[rows], kind="stable")]
        return RowGroups(order, np.flatnonzero(np.diff(self.case[order], prepend=-1) != 0))

    def ends_over(self, groups: RowGroups) -> ResponseEnds:
        """Aggregate how responses ended, for units that consist of several questions."""
        return groups.reduce(np.add, self.ends), groups.reduce(np.logical_or, self.lost).mean(axis=1)


def grade(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> Graded:
    """Grade answers against the key of their questions.

    Questions with a hidden answer are left out. An answer absent for one of the samples is
    `missing`. A choice counts only if the status is `answered`.

    Args:
        family: Benchmark whose question format the questions have.
        questions: Columns `question_id, case_id, options, answer, question_type` and the facets.
        answers: Columns `question_id, choice, status` and, with several samples, `sample`.

    Returns:
        The graded answers of the questions with a known key.

    Raises:
        BadInput: Unknown format, question id or status, a duplicate (question_id, sample), a
            missing sample number or column, or a choice outside the options.
    """
    if family not in FACETS_BY_BENCHMARK:
        raise BadInput(f"format {family!r}: unknown. Available: {', '.join(FACETS_BY_BENCHMARK)}.")
    check_columns(questions, ["question_id", "case_id", "options", "answer", "question_type"])
    check_columns(answers, ["question_id", "choice", "status"], "answers")
    keys = questions["answer"].tolist()
    has_key = _sizes(keys) > 0
    rows, column, samples = _row_indices(questions["question_id"], answers)
    shape = (len(questions), samples)
    is_right, picks, right_picks = (
        np.zeros(shape, bool),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
    )
    first_choice, statuses = np.full(shape, -1, np.int64), np.full(shape, "missing", dtype=object)
    statuses[rows, column] = answers["status"].to_numpy(dtype=object)
    _check_statuses(answers)
    # The official ProbMed reader takes a response with both "yes" and "no" as right for either key;
    # ours never reads both.
    is_yes_no = (questions["question_type"] == "yes_no").to_numpy(dtype=bool)
    for row, sample, choice in zip(rows.tolist(), column.tolist(), answers["choice"].tolist(), strict=True):
        if not _size(choice) or statuses[row, sample] != "answered":
            continue
        first_choice[row, sample] = choice[0]
        if has_key[row]:
            chosen, key = {int(option) for option in choice}, {int(option) for option in keys[row]}
            picks[row, sample], right_picks[row, sample] = len(chosen), len(chosen & key)
            is_right[row, sample] = chosen == key or (is_yes_no[row] and key <= chosen)
    # Text arrived, but no option could be read from it.
    statuses[(statuses == "answered") & (first_choice == -1)] = "irrelevant"
    frame, status = questions[has_key].reset_index(drop=True), statuses[has_key]
    lost = np.isin(status.astype(str), LOST_STATUSES)
    # Questions with a hidden key are dropped from here on.
    k = _sizes(frame["options"].tolist())
    outside = (first_choice[has_key] >= k[:, None]) | (first_choice[has_key] < -1)
    if outside.any():
        question_id = frame["question_id"].iloc[int(np.argmax(outside.any(axis=1)))]
        raise BadInput(f"answers: the choice for {question_id!r} is not one of its options. Read the responses again.")
    multiple = (frame["question_type"] == "multiple").to_numpy(dtype=bool)
    return Graded(
        family=family,
        questions=frame,
        columns={
            name: frame[name].to_numpy(dtype=object)
            for name in (
                "question_id",
                "case_id",
                *(_source(facet) for facet in facets_of(family, frame.columns)),
            )
            if name in frame.columns
        },
        right=is_right[has_key],
        answered=picks[has_key] > 0,
        refused=status == "refused",
        irrelevant=status == "irrelevant",
        lost=lost,
        ends=np.stack(
            [
                np.full(len(frame), samples),
                *((status == reason).sum(axis=1) for reason in NONRESPONSE_STATUSES),
            ],
            axis=1,
        ).astype(np.int64),
        picks=picks[has_key],
        right_picks=right_picks[has_key],
        first_choice=first_choice[has_key],
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
    """Return the question column that a facet is read from."""
    return "categories" if facet == "category" else facet


def image_clusters(questions: pd.DataFrame) -> Ints:
    """Number the clusters of questions: components of cases connected by images or patients.

    MediConfusion, for example, uses an image in up to 14 pairs: its 176 pairs form 60 components.
    Without the columns `image_id` and `group`, every case is its own cluster.

    Args:
        questions: Columns `case_id` and, if present, `image_id`, `more_image_ids`, `group`.

    Returns:
        The cluster number of each question (Q,).
    """
    case = pd.factorize(questions["case_id"])[0]
    shared = [name for name in ("image_id", "group") if name in questions.columns]
    # No image or patient ids: every case is independent.
    if not shared or not len(questions):
        return case.astype(np.int64)
    nodes = int(case.max()) + 1
    rows, columns = [], []
    for name in shared:
        ids = question_image_ids(questions) if name == "image_id" else questions[name].reset_index(drop=True)
        codes, names = pd.factorize(ids)
        rows.append(case[ids.index[codes >= 0]])
        columns.append(nodes + codes[codes >= 0])
        nodes += len(names)
    row, column = np.concatenate(rows), np.concatenate(columns)
    # Bipartite graph of cases and their images or patients.
    links = coo_array((np.ones(len(row)), (row, column)), shape=(nodes, nodes))
    label = connected_components(links, directed=False)[1]
    return label[case].astype(np.int64)


def question_image_ids(questions: pd.DataFrame) -> pd.Series:
    """Return the image ids of every question, indexed by the question's position.

    Questions with several images have several rows.
    """
    first_image_ids = questions["image_id"].reset_index(drop=True)
    if "more_image_ids" not in questions.columns:
        return first_image_ids
    return pd.concat(
        [
            first_image_ids.astype(object),
            questions["more_image_ids"].reset_index(drop=True).explode().dropna(),
        ]
    )


def _row_indices(question_ids: pd.Series, answers: pd.DataFrame) -> tuple[Ints, Ints, int]:
    """Return the question row and sample column of each answer, and the number of samples."""
    index = pd.Index(question_ids.astype(str))
    if not index.is_unique:
        raise BadInput(f"questions: the id {index[index.duplicated()][0]!r} occurs twice. Rebuild the dataset.")
    rows = index.get_indexer(pd.Index(answers["question_id"].astype(str)))
    if (rows < 0).any():
        unknown = answers["question_id"].iloc[int(np.argmin(rows))]
        raise BadInput(
            f"answers: {str(unknown)!r} is not a question of this benchmark. Check the benchmark, split and ids."
        )
    sample_numbers = answers["sample"] if "sample" in answers.columns else pd.Series(0, index=answers.index)
    column, names = pd.factorize(sample_numbers, sort=True)
    # factorize codes a missing number as -1, which as an index would mean the last sample.
    if (column < 0).any():
        unnumbered = answers["question_id"].iloc[int(np.argmin(column))]
        raise BadInput(
            f"answers: {unnumbered!r} has no sample number. Number the samples 0, 1, 2 ..., or leave them all out."
        )
    samples = max(len(names), 1)
    # One number per (question, sample) cell, to find duplicates.
    cell_numbers = rows * samples + column
    if len(np.unique(cell_numbers)) != len(cell_numbers):
        duplicate = answers.loc[pd.Series(cell_numbers).duplicated().to_numpy(), "question_id"].iloc[0]
        raise BadInput(f"answers: {duplicate!r} is answered twice in one sample. Number the samples 0, 1, 2 ...")
    return rows.astype(np.int64), column.astype(np.int64), samples


def _size(value: object) -> int:
    """Return the length of a table cell that holds a list; 0 for null."""
    return len(value) if isinstance(value, (list, tuple, np.ndarray)) else 0


def _sizes(cells: Sequence[object]) -> Ints:
    return np.fromiter(map(_size, cells), np.int64, count=len(cells))


def check_columns(frame: pd.DataFrame, columns: Sequence[str], name: str = "questions", purpose: str = "") -> None:
    """Raise BadInput if a table lacks one of these columns.

    Args:
        frame: The table.
        columns: The columns that it needs.
        name: What the message calls the table.
        purpose: End of the message, such as ", which adversarial pairs need".
    """
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise BadInput(f"{name}: the column {', '.join(missing)} is missing{purpose}.")


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
    """Build the table of scoring units of one metric.

    Args:
        graded: The graded answers.
        metric: Name of the metric.
        rows: A question row for each unit (U,), from which case, cluster and facets are taken.
        numerator: What each unit scores (U,).
        denominator: What each unit could score (U,) or one number.
        chance: Expected numerator of a guesser (U,) or one number; NaN if undefined.
        unit: Ids of the units; question ids by default.
        count: What each unit adds to n.
        facets: Facet -> values (U,) that replace those of the questions.
        ends: How the units' responses ended; needed if units consist of several questions (see
            `Graded.ends_over`).

    Returns:
        One row per unit, with the columns of `derive.metrics.compute_units`.
    """
    identity: dict[str, object] = {
        "metric": np.full(len(rows), metric, dtype=object),
        "unit": graded.columns["question_id"][rows] if unit is None else np.asarray(unit, dtype=object),
        "case_id": graded.columns["case_id"][rows],
    }
    for facet in facets_of(graded.family, graded.questions.columns):
        if facets is not None and facet in facets:
            identity[facet] = facets[facet]
        else:
            source = graded.columns.get(_source(facet))
            identity[facet] = np.full(len(rows), None, dtype=object) if source is None else source[rows]
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
    # Object columns: converting these few repeated strings to another type and back gains nothing.
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in identity.items()} | numbers)


# --- nonresponse ---


def numerator_if_lost_right(numerator: Any, denominator: Any, unsettled: Any) -> Any:
    """Return the numerators that units would have if every lost response were right.

    As stored, lost responses count as wrong.

    Args:
        numerator: What each unit scores.
        denominator: What each unit could score.
        unsettled: UNSETTLED_COLUMN of each unit.
    """
    return numerator + denominator * unsettled


def decisive_nonresponse(counts: Sequence[float], verdict_holds: bool = True) -> Nonresponse | None:
    """Return the nonresponse that withholds a verdict, or None if the score may have one.

    Args:
        counts: RESPONSE_COUNT_COLUMNS, summed over the units of the score.
        verdict_holds: Whether the verdict is the same with all lost responses right
            (`numerator_if_lost_right`) as with all of them wrong.

    >>> decisive_nonresponse([28, 14, 0, 0, 1]).truncated
    14
    >>> decisive_nonresponse([28, 14, 0, 0, 0])
    >>> decisive_nonresponse([28, 0, 2, 0, 0], False).failed
    2
    """
    responses, *silent = (int(count) for count in counts)
    nonresponse = Nonresponse(responses=responses, **dict(zip(NONRESPONSE_STATUSES, silent, strict=True)))
    return nonresponse if nonresponse.is_majority or not verdict_holds else None


def apply_nonresponse(score: Score, nonresponse: Nonresponse | None, keep_value: bool) -> Score:
    """Withhold the verdict of a score, and its value if most responses contain no answer.

    Args:
        score: The score with its verdict.
        nonresponse: From `decisive_nonresponse`; None returns the score unchanged.
        keep_value: Never withhold the value (metrics of nonresponse, official readers).
    """
    if nonresponse is None:
        return score
    # If only a minority contains no answer, the verdict is withheld, but not the value.
    if keep_value or not nonresponse.is_majority:
        return score.model_copy(update={"verdict": None, "nonresponse": nonresponse})
    return Score(value=None, n=score.n, n_cases=score.n_cases, nonresponse=nonresponse)
