"""Scores over several runs of one model: best over methods, prompts x samples, majority, best-of-N oracle (MediConfusion
Tables 1 and 2, appendices C and H). What they give becomes a result of the kind `aggregate`, with the run ids it was computed from.

See also: the scores of one run (`scoring.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import METRICS
from eval_harness.derive.summary import summarise
from eval_harness.records.result import Breakdown, Method, Result, Score, Scores
from eval_harness.scores.grading import grade
from eval_harness.scores.nonresponse import REASONS


def best_over_methods(results: Sequence[Result]) -> tuple[Scores, Breakdown]:
    """Each accuracy's best score over runs with different methods: overall (Table 1, last columns), and per facet value (Table 2).

    The accuracies of a format are `accuracies`. Every cell is picked by itself, as in Table 2: a category's best set accuracy and its
    best individual accuracy may come from different methods. A cell carries the interval and verdict of the run it is from; it was
    picked after the fact, so its interval says nothing of the picking and leans to the good side.
    """
    best = _best([result.scores for result in results])
    cells: Breakdown = {}
    for facet in dict.fromkeys(facet for result in results for facet in result.breakdown):
        found = [result.breakdown.get(facet, {}) for result in results]
        labels = dict.fromkeys(label for values in found for label in values)
        picked = {label: _best([values.get(label, {}) for values in found]) for label in labels}
        cells[facet] = {label: scores for label, scores in picked.items() if scores}
    return best, {facet: values for facet, values in cells.items() if values}


def accuracies(names: Iterable[str]) -> list[str]:
    """Those of some metrics that say how often a responder is right; not rates of confusion, refusal or the like.

    `answered_accuracy` is not among them: it leaves out what a responder did not answer, so that its best is whoever answers least.
    """
    known = ((name, METRICS.get(name)) for name in names)
    return [name for name, info in known if info and info.higher_is_better and not name.startswith("answered_")]


def _best(found: Sequence[Scores]) -> Scores:
    """The highest score of each accuracy; of equal ones the first. Where no run has one, the first says why."""
    best: Scores = {}
    for metric in accuracies(dict.fromkeys(name for scores in found for name in scores)):
        known = [scores[metric] for scores in found if metric in scores and scores[metric].value is not None]
        without = [scores[metric] for scores in found if metric in scores and scores[metric].nonresponse is not None]
        if known or without:
            best[metric] = max(known, key=lambda score: score.value or 0.0) if known else without[0]
    return best


def prompts_by_samples(
    family: str, questions: pd.DataFrame, runs: Mapping[str, pd.DataFrame], metric: str = "set_accuracy"
) -> pd.DataFrame:
    """Mean and standard deviation of a metric over samples, per prompt and over all (appendix C, Table 4).

    `runs`: prompt name -> its read answers with several samples. Rows: the prompts, then `all`; columns `mean, std, runs, std_of_means`
    (the last for `all` only: spread between the prompts' means). std divides by n - 1. Table 4's "all prompts" deviation (0.04 for
    GPT-4o) is smaller than that of its own prompt means (about 0.9) and cannot be either of these.
    """
    rows: dict[str, dict[str, float]] = {}
    everything: list[float] = []
    for prompt, answers in runs.items():
        values = per_sample(family, questions, answers, metric)
        everything.extend(values)
        rows[prompt] = {
            "mean": float(np.mean(values)),
            "std": _std(values),
            "runs": len(values),
            "std_of_means": float("nan"),
        }
    means = [row["mean"] for row in rows.values()]
    rows["all"] = {
        "mean": float(np.mean(everything)),
        "std": _std(everything),
        "runs": len(everything),
        "std_of_means": _std(means),
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def per_sample(family: str, questions: pd.DataFrame, answers: pd.DataFrame, metric: str) -> list[float]:
    """The metric of every sample by itself (percent), in the order of the samples; nan where it is undefined."""
    found = sample_scores(family, questions, answers, metric)
    return [float("nan") if score is None or score.value is None else score.value for score in found]


def sample_scores(family: str, questions: pd.DataFrame, answers: pd.DataFrame, metric: str) -> list[Score | None]:
    """The score of every sample by itself, in the order of the samples."""
    from eval_harness.derive.scoring import units

    parts = (part for _, part in answers.groupby("sample", sort=True))
    return [summarise(_only(units(family, questions, part), metric)).get(metric) for part in parts]


def majority(answers: pd.DataFrame, n: int | None = None) -> pd.DataFrame:
    """The most frequent choice among the first n samples of every question, as the answers of one sample (appendix H.2.3, Table 10).

    Answers without a choice do not vote. Of equally frequent choices the one that came first is taken; a question without a vote
    has the most frequent status of its samples.
    """
    rows = []
    for question, part in answers.sort_values("sample", kind="stable").groupby("question_id", sort=False):
        votes = Counter(tuple(choice) for choice in part["choice"].tolist()[:n] if len(choice))
        choice = list(votes.most_common(1)[0][0]) if votes else []
        status = "answered" if choice else part["status"].iloc[:n].mode()[0]
        rows.append({"question_id": question, "sample": 0, "choice": choice, "status": status})
    return pd.DataFrame(rows, columns=["question_id", "sample", "choice", "status"])


def oracle(family: str, questions: pd.DataFrame, answers: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """Best of N with an oracle: a question counts as right where more than `threshold` percent of its samples are (H.2.1, Table 8).

    `answers` of the free-form method, judged with a score gap of 2 (3 elsewhere). Gives answers of one sample: the key
    where accepted, else none; that most samples of a question say nothing stays known.
    """
    graded = grade(family, questions, answers)
    accepted = 100 * graded.right.mean(axis=1) > threshold + 1e-9
    keys = graded.questions["answer"].tolist()
    silent = graded.ends[:, 1:].sum(axis=1)
    reason = np.array(REASONS, dtype=object)[graded.ends[:, 1:].argmax(axis=1)]
    return pd.DataFrame(
        {
            "question_id": graded.columns["question_id"],
            "sample": 0,
            "choice": pd.Series(
                [list(key) if ok else [] for key, ok in zip(keys, accepted, strict=True)], dtype=object
            ),
            "status": np.where(accepted, "answered", np.where(silent > graded.samples / 2, reason, "refused")),
        }
    )


def aggregate_result(
    name: str, runs: Mapping[str, Result], scores: Scores, breakdown: Breakdown | None = None
) -> Result:
    """A result of the kind `aggregate`, called `name` (its method), computed from the measured results `runs` (run id -> result).

    Raises BadInput where the runs are of different models, or did not ask the same questions.
    """
    results = list(runs.values())
    if not results:
        raise BadInput(f"{name}: an aggregate needs at least one run.")
    first = results[0]
    for run_id, result in runs.items():
        if (result.model.name, result.model.revision) != (first.model.name, first.model.revision):
            raise BadInput(
                f"{name}: run {run_id} is of {result.model.name}, not {first.model.name}. Give runs of one model."
            )
        if result.benchmark.fingerprint != first.benchmark.fingerprint:
            raise BadInput(f"{name}: run {run_id} asked other questions. Give runs over the same questions.")
    reproduced = all(result.provenance == "reproduced" for result in results)
    return Result(
        kind="aggregate",
        provenance="reproduced" if reproduced else "submitted",
        benchmark=first.benchmark,
        model=first.model,
        method=Method(
            name=name, extraction=first.method.extraction, samples=sum(result.method.samples or 1 for result in results)
        ),
        scores=scores,
        breakdown=breakdown or {},
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        run_ids=sorted(runs),
    )


def _only(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    return table[(table["metric"] == metric).to_numpy()]


def _std(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
