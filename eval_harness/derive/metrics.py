"""The metrics: descriptions, units, scores with interval, chance and verdict, the headline score.

A benchmark's own metrics and the units that they count are declared in its module (`benchmarks/`).
Units are computed from the readings of all answers (`compute_units`), scores from all units or any
subset (`summarise_units`).

See also: reading responses (`reading.py`), the rule for missing answers (`scores/grading.py`), the
statistics (`scores/intervals.py`). Imports neither torch nor gradio.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dataset_builders.benchmarks import FORMATS, facets_of
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.records.result import MIN_INDEPENDENT_CASES, STATUSES, Breakdown, Nonresponse, Result, Score, Scores
from eval_harness.scores.grading import (
    NONRESPONSE_STATUSES,
    RESPONSE_COUNT_COLUMNS,
    UNSETTLED_COLUMN,
    Graded,
    apply_nonresponse,
    decisive_nonresponse,
    grade,
    make_units,
    numerator_if_lost_right,
)
from eval_harness.scores.intervals import round_number, score_ratio

HEADLINE_METRICS: dict[str, str] = {name: eval_spec(name).headline for name in FORMATS}
"""Benchmark -> the metric that it is ranked by."""

OVERALL_METRICS: dict[str, str] = {
    name: eval_spec(name).over_all or headline for name, headline in HEADLINE_METRICS.items()
}
"""Benchmark -> the metric over all its questions.

It is used to tell for each question whether it was answered correctly.
"""

_EVERYWHERE = {
    "irrelevant": MetricInfo(
        "Irrelevant",
        "Share of all responses in which no option could be read.",
        False,
        of_ends=True,
    ),
    "refused": MetricInfo("Refused", "Share of all responses that decline to answer.", False, of_ends=True),
    "abstained": MetricInfo(
        "Abstained",
        "Share of all responses without a choice for any reason (refused, cut off, failed, missing, unreadable).",
        None,
        of_ends=True,
    ),
    "answered_accuracy": MetricInfo(
        "Accuracy where answered",
        "Questions with one correct option answered correctly, among those for which an option was "
        "chosen: an abstention is neither "
        "right nor wrong.",
    ),
}

_SHARES = {
    f"share_{letter}": MetricInfo(f"Share of {letter}", f"Share of the readable answers that choose {letter}.", None)
    for letter in LETTERS
} | {
    "share_yes": MetricInfo("Share of yes", "Share of the readable answers that say yes.", None),
    "share_no": MetricInfo("Share of no", "Share of the readable answers that say no.", None),
}

METRICS: dict[str, MetricInfo] = {}

for _name in FORMATS:
    for _metric, _info in eval_spec(_name).metrics.items():
        # The first benchmark's description of a shared name stays.
        METRICS.setdefault(_metric, _info)

# Metrics of all benchmarks come last: no benchmark may redefine them.
METRICS |= {**_EVERYWHERE, **_SHARES}
"""Every metric by name.

If two benchmarks have a metric of the same name, it is the first one's
(`eval_spec(benchmark).metrics` has each).
"""

BALANCED_METRICS = {
    "average": "scenario",
    "average_irrelevant": "scenario",
    "accuracy_macro_task": "task",
}
"""Metric -> facet over whose values it is a mean.

In a subset, all values that are still present have the same weight.
"""

DEFAULT_METRIC_INFO = MetricInfo("", "")
"""Used for a metric that no benchmark defines: percent, higher is better."""

# --- units and scores of a run ---


@dataclass(frozen=True)
class Scored:
    """The numbers of a run.

    Attributes:
        scores: Metric -> score.
        breakdown: Facet -> facet value -> metric -> score.
        statuses: Number of responses per status.
        units: The units that the scores were computed from (`compute_units`).
    """

    scores: Scores
    breakdown: Breakdown = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    units: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)


def compute_scores(family: str, questions: pd.DataFrame, answers: pd.DataFrame, extraction: str = "ours") -> Scored:
    """Compute every metric of a benchmark with interval, chance and verdict, also per facet value.

    A benchmark may add breakdowns by something other than a facet (`EvalSpec.more_breakdowns`). A
    metric has the value None if no question counts towards it. The value is also None if most
    responses to its questions contain no answer, unless `extraction` is `official` (see
    `summarise_units`).

    Args:
        family: Benchmark whose question format the questions have.
        questions: See `compute_units`.
        answers: See `compute_units`.
        extraction: `ours` or `official`.

    Raises:
        BadInput: See `compute_units`.
    """
    graded = grade(family, questions, answers)
    table = _all_units(graded)
    official = extraction == "official"
    scores = summarise_units(table, official)
    parts = break_down_by_facet(table, facets_of(family, questions.columns), official)
    if (extra_breakdowns := eval_spec(family).more_breakdowns) is not None:
        parts |= extra_breakdowns(graded, official)
    return Scored(
        scores={HEADLINE_METRICS[family]: Score(value=None, n=0, n_cases=0)} | scores
        if HEADLINE_METRICS[family] not in scores
        else scores,
        breakdown=parts,
        statuses=_statuses(questions, answers),
        units=table,
    )


def compute_units(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Build the scoring units of every metric of a benchmark.

    A metric is 100 x sum(numerator) / sum(denominator) (a count metric: sum(numerator)), so the
    score of any subset follows from a mask. With several samples, numerator and denominator are
    means over them.

    Args:
        family: Benchmark whose question format the questions have.
        questions: The columns of the config `questions_text`, labels as strings. Questions with a
            hidden answer are left out.
        answers: `question_id, sample, choice, status`, from `reading.read_responses`.

    Returns:
        One row per (metric, unit): `metric, unit, case_id, case, cluster, numerator, denominator,
        chance, count`, the response counts (`grading.RESPONSE_COUNT_COLUMNS`) and the facets.
        `chance` is the expected numerator of a guesser; `count` is what the unit adds to n;
        `cluster` is the connected component of cases sharing images. The facet `category` is a list
        per unit (`explode_facet` makes one row per label).

    Raises:
        BadInput: If an id is unknown, an answer occurs twice, or a column is missing.
    """
    return _all_units(grade(family, questions, answers))


def _all_units(graded: Graded) -> pd.DataFrame:
    return pd.concat([eval_spec(graded.family).units(graded), _everywhere(graded)], ignore_index=True)


def _everywhere(graded: Graded) -> pd.DataFrame:
    """Build the units of the metrics that every benchmark has.

    These are `irrelevant`, `refused`, `abstained` (no choice for any reason), the accuracy among
    questions for which an option was chosen, and the share of each letter (or of yes and no) among
    the answers that were read.
    """
    rows = np.arange(len(graded.questions))
    frames = [
        make_units(graded, "irrelevant", rows, graded.irrelevant.mean(axis=1)),
        make_units(graded, "refused", rows, graded.refused.mean(axis=1)),
        make_units(graded, "abstained", rows, (~graded.answered).mean(axis=1)),
    ]
    # Only questions with one correct option: those with several correct options have
    # metrics of their own.
    single_answer_rows = np.flatnonzero(~graded.multiple)
    chose_share, hits = (
        graded.answered[single_answer_rows].mean(axis=1),
        graded.right[single_answer_rows].mean(axis=1),
    )
    frames.append(
        make_units(
            graded,
            "answered_accuracy",
            single_answer_rows,
            hits,
            chose_share,
            graded.guess[single_answer_rows] * chose_share,
        )
    )
    yes_no = (graded.questions["question_type"] == "yes_no").to_numpy(dtype=bool)
    # Letters are counted over single-choice questions only.
    single = ~yes_no & ~graded.multiple
    for members, labels in (
        (np.flatnonzero(single), LETTERS),
        (np.flatnonzero(yes_no), ("yes", "no")),
    ):
        if not len(members):
            continue
        answered = graded.answered[members].mean(axis=1)
        for option in range(min(int(graded.k[members].max()), len(labels))):
            offering_rows = members[graded.k[members] > option]
            chosen = (graded.first_choice[offering_rows] == option).mean(axis=1)
            share = answered[graded.k[members] > option]
            frames.append(make_units(graded, f"share_{labels[option]}", offering_rows, chosen, share))
    return pd.concat(frames, ignore_index=True)


def _statuses(questions: pd.DataFrame, answers: pd.DataFrame) -> dict[str, int]:
    """Count the responses per status."""
    counted = answers["status"].value_counts().to_dict()
    samples = max(answers["sample"].nunique(), 1) if "sample" in answers.columns else 1
    # Answers without a record are missing, too.
    absent = len(questions) * samples - len(answers)
    statuses = {name: int(counted.get(name, 0)) for name in STATUSES}
    statuses["missing"] += max(absent, 0)
    return statuses


# --- scores of any units ---


def summarise_units(units: pd.DataFrame, official: bool = False) -> dict[str, Score]:
    """Compute the score of each metric among units.

    A percentage is 100 x sum(numerator) / sum(denominator); a count metric is sum(numerator),
    without an interval. A verdict that depends on absent answers is withheld. If most responses
    contain no answer (`nonresponse`), the value is withheld, too, except for metrics of nonresponse
    and for a paper's `official` reader, which counts every response.

    Args:
        units: Rows of `compute_units`, any subset.
        official: Whether the paper's own reader read the answers.

    Returns:
        Metric -> score, in order of first appearance.
    """
    return _grouped(units, np.zeros(len(units), np.int64), official).get(0, {})


def break_down_by_facet(
    units: pd.DataFrame, facets: tuple[str, ...], official: bool = False
) -> dict[str, dict[str, dict[str, Score]]]:
    """Compute the scores of `summarise_units` per facet value.

    Args:
        units: Rows of `compute_units`.
        facets: Facets to break down by. Units without a value are left out; units with a list count
            once per label.
        official: Whether the paper's own reader read the answers.

    Returns:
        Facet -> facet value -> metric -> score.
    """
    result: dict[str, dict[str, dict[str, Score]]] = {}
    for facet in facets:
        if facet not in units.columns:
            continue
        # A unit with several labels counts under each of them.
        by_label = explode_facet(units, facet)
        if len(by_label):
            codes, labels = pd.factorize(by_label[facet], sort=True)
            grouped = _grouped(_balanced(by_label, codes), codes.astype(np.int64), official)
            result[facet] = {str(label): grouped[index] for index, label in enumerate(labels)}
    return result


def _balanced(units: pd.DataFrame, group: np.ndarray) -> pd.DataFrame:
    """Reweight the units of BALANCED_METRICS as if each group (U,) were the whole set."""
    numbers = units[["numerator", "denominator", "chance"]].to_numpy(float, copy=True)
    for metric, facet in BALANCED_METRICS.items():
        rows = np.flatnonzero(units["metric"] == metric)
        if not len(rows):
            continue
        label = units[facet].iloc[rows]
        if METRICS[metric].unit == "count":
            numbers[rows, 0] *= label.nunique() / label.groupby(group[rows]).transform("nunique").to_numpy(float)
        else:
            base = pd.Series(numbers[rows, 1]).groupby([group[rows], label.to_numpy()]).transform("sum")
            numbers[rows] /= base.to_numpy()[:, None]
    return units.assign(numerator=numbers[:, 0], denominator=numbers[:, 1], chance=numbers[:, 2])


def _grouped(units: pd.DataFrame, group: np.ndarray, official: bool) -> dict[int, dict[str, Score]]:
    """Compute scores per group number (U,) and metric."""
    metric, names = pd.factorize(units["metric"])
    columns = {name: units[name].to_numpy(float) for name in ("numerator", "denominator", "chance", UNSETTLED_COLUMN)}
    columns |= {name: units[name].to_numpy(np.int64) for name in ("case", "cluster", "count", *RESPONSE_COUNT_COLUMNS)}
    # Sort once by (group, metric), so that each cell is a slice.
    key = group * len(names) + metric
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order], prepend=-1, append=-2)) if len(order) else np.zeros(0, np.int64)
    columns = {name: values[order] for name, values in columns.items()}
    result: dict[int, dict[str, Score]] = {}
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        index, metric_index = divmod(int(key[order[start]]), len(names))
        name = str(names[metric_index])
        info = METRICS.get(name, DEFAULT_METRIC_INFO)
        cell = {column: values[start:stop] for column, values in columns.items()}
        scored, verdict_holds = _score(info, cell), True
        if cell[UNSETTLED_COLUMN].any():
            best_case = numerator_if_lost_right(cell["numerator"], cell["denominator"], cell[UNSETTLED_COLUMN])
            verdict_holds = _score(info, cell | {"numerator": best_case}).verdict == scored.verdict
        nonresponse = decisive_nonresponse([cell[count].sum() for count in RESPONSE_COUNT_COLUMNS], verdict_holds)
        result.setdefault(index, {})[name] = apply_nonresponse(scored, nonresponse, official or info.of_ends)
    return result


def _score(info: MetricInfo, columns: dict[str, np.ndarray]) -> Score:
    numerator, denominator, cluster = (columns[name] for name in ("numerator", "denominator", "cluster"))
    # Units that can score nothing (denominator 0) do not count as cases.
    counts = denominator > 0
    cases = len(np.unique(columns["case"][counts]))
    n = int(columns["count"][counts].sum())
    if info.unit == "count":
        return Score(value=round_number(float(numerator.sum())), n=n, n_cases=cases)
    guessed, chance = columns["chance"][counts], None
    if len(guessed) and np.isfinite(guessed).all():
        chance = round_number(100 * float(guessed.sum()) / float(denominator.sum()))
    return score_ratio(numerator, denominator, cluster, n, cases, chance, info.higher_is_better)


def explode_facet(units: pd.DataFrame, facet: str) -> pd.DataFrame:
    """Expand units to one row per label of a facet; rows without a label are dropped.

    A MediConfusion pair carries the labels of both its images, so a pair of two Cerebral images
    counts twice, as in the paper's Table 2.

    Args:
        units: Rows of `compute_units`.
        facet: Column with the labels.
    """
    column = units[facet]
    if facet == "category":
        units = units.explode(facet)
        column = units[facet]
    return units[column.notna()]


# --- the headline score of a result, or why it has none ---


@dataclass(frozen=True)
class NoScore:
    """Why a result has no headline score; `nonresponse` is set if that is the reason."""

    reason: str
    nonresponse: Nonresponse | None = None

    def __str__(self) -> str:
        return f"no score: {self.reason}"


def headline_score(result: Result) -> Score | NoScore:
    """Return the score of a result's headline metric, or why it has none.

    Used wherever a run is ranked or compared by a single score.
    """
    metric = HEADLINE_METRICS[result.benchmark.family]
    score = result.scores.get(metric)
    if score is not None and score.value is not None:
        return score
    if score is not None and score.nonresponse is not None:
        return NoScore(
            f"{nonresponse_cause(score.nonresponse, result)}; {nonresponse_remedy(score.nonresponse, result)}",
            score.nonresponse,
        )
    return NoScore(f"no question counts towards {metric}, or the answer key is hidden")


def untested_reason(score: Score, result: Result, case_noun: str = "case") -> str:
    """Return why a score has neither verdict nor rank; empty if it may have them.

    Args:
        score: The score.
        result: The result that it belongs to.
        case_noun: What a case is called.
    """
    if score.nonresponse is not None:
        return nonresponse_cause(score.nonresponse, result)
    worth = f"worth {score.n_effective:.1f}, and a test needs {MIN_INDEPENDENT_CASES}" if score.is_small else ""
    return f"too few independent {case_noun}s ({worth})" if worth else ""


def nonresponse_cause(nonresponse: Nonresponse, result: Result) -> str:
    """Describe why most responses contain no answer, with the number of responses for each reason.

    For example "28 of 28 answers were cut off at 8 tokens", or "27 of 28 answers say nothing: 20
    were cut off at 8 tokens, 7 failed".

    Args:
        nonresponse: Numbers of responses by reason.
        result: The result, which states the output limit.
    """
    # The server's limit, if it reported one, overrides the requested one.
    limit = result.environment.get("output_limit") or result.method.generation.get("max_tokens")
    # The answers were generated elsewhere, with settings that are not known.
    if "recorded_file" in result.environment:
        limit = None
    cutoff = (
        f"at {limit:,} token{'s' * (limit != 1)}" if isinstance(limit, int) and limit > 0 else "by the output limit"
    )
    # One answer of several, or several of them.
    phrases = {
        "truncated": (f"was cut off {cutoff}", f"were cut off {cutoff}"),
        "failed": ("failed", "failed"),
        "missing": ("is missing", "are missing"),
        "irrelevant": ("could not be read", "could not be read"),
    }
    counts = {reason: count for reason in NONRESPONSE_STATUSES if (count := getattr(nonresponse, reason))}
    of_all = f"{sum(counts.values()):,} of {nonresponse.responses:,} answers"
    if len(counts) == 1:
        return f"{of_all} {phrases[next(iter(counts))][1]}"
    parts = [f"{count:,} {phrases[reason][count > 1]}" for reason, count in counts.items()]
    return f"{of_all} say nothing: {', '.join(parts)}"


_REMEDIES = {
    "truncated": "raise --max-tokens",
    "failed": "run the same command again to repeat the failed ones",
    "missing": "add the missing answers",
    "irrelevant": "look at some of them; a judge model can read those that contain text (--judge)",
}


def nonresponse_remedy(nonresponse: Nonresponse, result: Result) -> str:
    """Return a remedy for each reason that applies, separated by semicolons.

    Args:
        nonresponse: Numbers of responses by reason.
        result: The result; answers from a recorded file cannot be asked again.
    """
    # Behind a recorded file there is no model that could be asked again.
    elsewhere = "ask them again where the file was made"
    recorded = {"failed": elsewhere} if "recorded_file" in result.environment else {}
    remedies = [remedies for reason, remedies in (_REMEDIES | recorded).items() if getattr(nonresponse, reason)]
    return "; ".join(dict.fromkeys(remedies))
