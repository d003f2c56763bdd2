"""Aggregate several runs of one model, or the samples of one run; compute a run's calibration.

Aggregates are results of the kind `aggregate`, with the ids of the runs that they combine: best
over methods, mean over prompts and samples, majority vote, best-of-N oracle (MediConfusion Tables 1
and 2, appendices C and H). This module also computes the scores of a run's adversarial pairs
(ProbMed Table 3), and calibration and risk-coverage of runs whose answers have a score per option
(methods `ps` and `gd`).

See also: choosing the option with the highest score (`derive/reading.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.schema import ASPECTS
from eval_harness.benchmarks.probmed_vqa_rad import pair_units
from eval_harness.derive.derivation import Derived
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS, compute_scores, compute_units, summarise_units
from eval_harness.records.result import Breakdown, Method, Result, Score, Scores, read_run
from eval_harness.runs.run_folder import read_run_questions
from eval_harness.runs.runner import derive_run
from eval_harness.scores.grading import NONRESPONSE_STATUSES, grade
from eval_harness.scores.intervals import Floats

AGGREGATE_KINDS = ("best", "mean", "majority", "oracle")
"""The kinds of aggregates."""


def aggregate(kind: str, folders: Sequence[Path], threshold: float = 50.0, out: Path | None = None) -> Result:
    """Compute one aggregate.

    The tables are those of MediConfusion:

    - `best`: the best value of each accuracy over runs with different methods, overall and per
      facet value (Tables 1, last columns, and 2).
    - `mean`: mean and standard deviation of the headline metric over the samples of runs with
      different prompts (appendix C, Table 4).
    - `majority`: the most frequent choice among the samples of a run (Table 10).
    - `oracle`: correct if more than `threshold` percent of the samples of a run are (Table 8).

    Args:
        kind: One of AGGREGATE_KINDS.
        folders: Run folders.
        threshold: For `oracle`, a percentage of a question's samples.
        out: If given, the result is written to this file.

    Returns:
        The aggregate result.

    Raises:
        BadInput: If the kind is unknown, a folder is not a run, the runs differ in model or
            questions, or there are too few runs or samples.
    """
    if kind not in AGGREGATE_KINDS:
        raise BadInput(f"aggregate {kind}: unknown aggregate. Available: {', '.join(AGGREGATE_KINDS)}.")
    if not 0 <= threshold < 100:
        raise BadInput(f"--threshold {threshold}: give a percentage from 0 to below 100.")
    runs = {read_run(folder).run_id: (folder, derive_run(folder)[0]) for folder in folders}
    # Keyed by run id, so that a run given twice is noticed even under another path.
    if len(runs) < len(folders):
        raise BadInput("aggregate: the same run was given twice.")
    _check_combinable(kind, {run_id: derived.result for run_id, (_, derived) in runs.items()})
    results = [derived.result for _, derived in runs.values()]
    reference = results[0]
    cells: Breakdown = {}
    if kind == "best":
        scores, cells = best_over_methods(results)
    elif kind == "mean":
        scores = _mean_over_prompts(reference.benchmark.family, runs)
    else:
        scores = _combine_samples(kind, reference.benchmark.family, runs, threshold)

    reproduced = all(result.provenance == "reproduced" for result in results)
    combined = Result(
        kind="aggregate",
        provenance="reproduced" if reproduced else "submitted",
        benchmark=reference.benchmark,
        model=reference.model,
        method=Method(
            name=f"oracle {threshold:g}%" if kind == "oracle" else kind,
            extraction=reference.method.extraction,
            samples=sum(result.method.samples or 1 for result in results),
        ),
        scores=scores,
        breakdown=cells,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        run_ids=sorted(runs),
    )
    if out is not None:
        replace_file(out, combined.to_json().encode())

    return combined


def _check_combinable(kind: str, results: Mapping[str, Result]) -> None:
    """Raise BadInput if runs differ in model or questions, or did not show the right images."""
    reference = next(iter(results.values()))
    model, fingerprint = (reference.model.name, reference.model.revision), reference.benchmark.fingerprint
    for run_id, result in results.items():
        problems = (
            (
                (result.model.name, result.model.revision) != model,
                f"is of {result.model.name}, not {reference.model.name}. Give runs of one model.",
            ),
            (
                result.benchmark.fingerprint != fingerprint,
                "asked different questions. Give runs over the same questions.",
            ),
            (result.method.image != "real", f"showed {result.method.image} images. Give runs with the real images."),
        )
        for applies, problem in problems:
            if applies:
                raise BadInput(f"{kind}: run {run_id} {problem}")


def _mean_over_prompts(family: str, runs: dict[str, tuple[Path, Derived]]) -> Scores:
    """Compute the mean of the headline metric over all samples of all runs.

    Its standard deviation is returned as `<metric>_std`.
    """
    prompts = [derived.result.method.prompt or run_id for run_id, (_, derived) in runs.items()]
    if len(set(prompts)) < len(prompts):
        raise BadInput("aggregate mean: two runs have the same prompt. Give one run per prompt, with --samples N.")
    metric = HEADLINE_METRICS[family]
    folder, first = next(iter(runs.values()))
    questions = read_run_questions(folder)
    samples = [
        score for _, derived in runs.values() for score in sample_scores(family, questions, derived.readings, metric)
    ]
    values = [score.value for score in samples if score is not None and score.value is not None]
    # There is no mean if the metric is undefined in one of the samples.
    complete_values = values if len(values) == len(samples) else []
    reference_score = first.result.scores[metric]
    mean = float(np.mean(complete_values)) if complete_values else None
    # Sample standard deviation (n - 1).
    std = float(np.std(complete_values, ddof=1)) if len(complete_values) > 1 else None
    nonresponses = (score.nonresponse for score in samples if score is not None and score.nonresponse)
    return {
        metric: Score(
            value=mean,
            n=reference_score.n,
            n_cases=reference_score.n_cases,
            chance=reference_score.chance,
            nonresponse=next(nonresponses, None) if mean is None else None,
        ),
        f"{metric}_std": Score(value=std, n=len(samples), n_cases=reference_score.n_cases),
    }


def _combine_samples(kind: str, family: str, runs: dict[str, tuple[Path, Derived]], threshold: float) -> Scores:
    """Combine the samples of one run (`majority` or `oracle`), and score the outcome."""
    if len(runs) != 1:
        raise BadInput(f"aggregate {kind}: takes one run folder, made with --samples N.")
    folder, derived = next(iter(runs.values()))
    answers = derived.readings
    if answers["sample"].nunique() < 2:
        raise BadInput(f"{folder}: has one sample per question. `medprobe eval --samples N` draws several.")
    questions = read_run_questions(folder)
    if kind == "majority":
        return compute_scores(family, questions, majority_vote(answers)).scores
    # The oracle only knows whether a question is correct. It does not know which wrong option was
    # chosen, or whether the model abstained, so only accuracies are meaningful.
    scores = compute_scores(family, questions, best_of_n_oracle(family, questions, answers, threshold)).scores
    return {name: scores[name] for name in accuracy_metrics(scores)}


def best_over_methods(results: Sequence[Result]) -> tuple[Scores, Breakdown]:
    """Select the best score of each accuracy over runs with different methods.

    Scores are selected overall, as in MediConfusion Table 1 (last columns), and per facet value, as
    in Table 2. Each is selected independently: the best set accuracy and the best individual
    accuracy of a category may come from different methods. A score keeps the interval and verdict
    of its run, which ignore the selection and are therefore optimistic.

    Args:
        results: Results of one model, one per method.

    Returns:
        The overall scores and the breakdown, in percent, for the metrics of `accuracy_metrics`.
    """
    best = _best_scores([result.scores for result in results])
    cells: Breakdown = {}
    for facet in dict.fromkeys(facet for result in results for facet in result.breakdown):
        facet_scores = [result.breakdown.get(facet, {}) for result in results]
        labels = dict.fromkeys(label for values in facet_scores for label in values)
        best_by_label = {label: _best_scores([values.get(label, {}) for values in facet_scores]) for label in labels}
        cells[facet] = {label: scores for label, scores in best_by_label.items() if scores}

    return best, {facet: values for facet, values in cells.items() if values}


def accuracy_metrics(names: Iterable[str]) -> list[str]:
    """Return the metrics that are accuracies, not rates of confusion, refusal and the like.

    `answered_accuracy` is excluded: it ignores unanswered questions, so a model that answers few of
    them would come out best.
    """
    metric_infos = ((name, METRICS.get(name)) for name in names)
    return [name for name, info in metric_infos if info and info.higher_is_better and not name.startswith("answered_")]


def _best_scores(run_scores: Sequence[Scores]) -> Scores:
    """Return the highest score of each accuracy; of equal ones, the first.

    If no run has a value, the first score that states why is returned.
    """
    best: Scores = {}
    for metric in accuracy_metrics(dict.fromkeys(name for scores in run_scores for name in scores)):
        defined = [scores[metric] for scores in run_scores if metric in scores and scores[metric].value is not None]
        undefined = [
            scores[metric] for scores in run_scores if metric in scores and scores[metric].nonresponse is not None
        ]
        if defined or undefined:
            best[metric] = max(defined, key=lambda score: score.value or 0.0) if defined else undefined[0]
    return best


def sample_scores(family: str, questions: pd.DataFrame, answers: pd.DataFrame, metric: str) -> list[Score | None]:
    """Score every sample on its own.

    Args:
        family: Benchmark format.
        questions: The questions.
        answers: Readings of all samples.
        metric: The metric to return.

    Returns:
        One score per sample, in the order of the samples; None where the metric does not apply.
    """
    parts = (part for _, part in answers.groupby("sample", sort=True))
    tables = [compute_units(family, questions, part) for part in parts]
    return [summarise_units(table[(table["metric"] == metric).to_numpy()]).get(metric) for table in tables]


def majority_vote(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the most frequent choice among the samples of every question.

    See MediConfusion, appendix H.2.3, Table 10. Answers without a choice do not vote. In a tie, the
    choice that occurred first wins; a question without votes gets the most frequent status of its
    samples.

    Args:
        answers: Readings of all samples.

    Returns:
        Answers of one sample (`question_id`, `sample`, `choice`, `status`).
    """
    rows = []
    for question, part in answers.sort_values("sample", kind="stable").groupby("question_id", sort=False):
        # Counter keeps insertion order, so most_common() breaks ties by first occurrence.
        votes = Counter(tuple(choice) for choice in part["choice"] if len(choice))
        choice = list(votes.most_common(1)[0][0]) if votes else []
        status = "answered" if choice else part["status"].mode()[0]
        rows.append({"question_id": question, "sample": 0, "choice": choice, "status": status})
    return pd.DataFrame(rows, columns=["question_id", "sample", "choice", "status"])


def best_of_n_oracle(family: str, questions: pd.DataFrame, answers: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """Accept a question if more than `threshold` percent of its samples are correct.

    This is best of N with an oracle (MediConfusion H.2.1, Table 8).

    Args:
        family: Benchmark format.
        questions: The questions with their key.
        answers: Readings of all samples. The paper used the free-form method here, with a judge
            that needed a score gap of 2 (3 elsewhere).
        threshold: Percentage of a question's samples.

    Returns:
        Answers of one sample: the key if the question is accepted, else no choice. If most samples
            of a question contain no answer, it keeps their most frequent status.
    """
    graded = grade(family, questions, answers)
    # The small constant keeps a share of exactly `threshold` from exceeding it by rounding.
    accepted = 100 * graded.right.mean(axis=1) > threshold + 1e-9
    keys = graded.questions["answer"].tolist()
    reasons = graded.ends[:, 1:]
    reason = np.array(NONRESPONSE_STATUSES, dtype=object)[reasons.argmax(axis=1)]
    return pd.DataFrame(
        {
            "question_id": graded.columns["question_id"],
            "sample": 0,
            "choice": pd.Series(
                [list(key) if ok else [] for key, ok in zip(keys, accepted, strict=True)],
                dtype=object,
            ),
            "status": np.where(
                accepted,
                "answered",
                np.where(reasons.sum(axis=1) > graded.samples / 2, reason, "refused"),
            ),
        }
    )


def adversarial_pair_scores(folder: Path) -> dict[str, Scores]:
    """Compute accuracy with and without adversarial questions (ProbMed section 4, Table 3).

    Returns:
        Aspect -> `accuracy_without_adversarial` (the true question of a pair is correct) and
            `accuracy_with_adversarial` (both questions are correct). `all` covers every pair and
            comes first. `n` counts pairs.

    Raises:
        BadInput: If the run's questions do not form adversarial pairs.
    """
    derived, questions = derive_run(folder)[0], read_run_questions(folder)
    result = derived.result
    if not {"pair_id", "adversarial"} <= set(questions.columns):
        raise BadInput(f"{folder}: a run on {result.benchmark.name}, whose questions do not form adversarial pairs.")
    graded = grade(result.benchmark.family, questions, derived.readings)
    units = pair_units(graded)
    if units.empty:
        raise BadInput(f"{folder}: its questions contain no pair of a true and an adversarial question.")
    if "aspect" not in questions.columns:
        return {"all": summarise_units(units)}
    aspect = graded.questions.set_index("pair_id")["aspect"].dropna().groupby(level=0).first()
    of_unit = units["unit"].map(aspect)
    parts = {name: summarise_units(units[(of_unit == name).to_numpy()]) for name in ASPECTS if (of_unit == name).any()}
    return {"all": summarise_units(units), **parts}


N_BINS = 10


@dataclass(frozen=True)
class Calibration:
    """Calibration of a run.

    Attributes:
        bins: Columns `confidence, accuracy, n` (percent, percent, count); N_BINS bins of equal
            width, empty ones left out.
        ece: Expected calibration error in percentage points.
        risk_coverage: Columns `coverage, risk` (percent), most confident answers first.
        aurc: Area under the risk-coverage curve: mean risk over all coverages, in percent.
        n: Number of answers used.
    """

    bins: pd.DataFrame
    ece: float
    risk_coverage: pd.DataFrame
    aurc: float
    n: int


def run_calibration(folder: Path) -> Calibration:
    """Compute the calibration of a run with option scores (`gd`, `ps`).

    Raises:
        BadInput: If the run has no option scores.
    """
    derived = derive_run(folder)[0]
    family = derived.result.benchmark.family
    calibration_result = compute_calibration(family, read_run_questions(folder), derived.readings)
    if calibration_result is None:
        raise BadInput(f"{folder}: has no option scores. Run `medprobe eval --method gd` (or ps).")
    return calibration_result


def compute_calibration(family: str, questions: pd.DataFrame, answers: pd.DataFrame) -> Calibration | None:
    """Compute calibration and risk-coverage of a run.

    Answers of equal confidence form one point of the risk-coverage curve.

    Args:
        family: Benchmark whose question format the questions have.
        questions: Questions with their answer keys.
        answers: Answers after reading, with `scores` (one number per option) and `sample`.

    Returns:
        The calibration, or None if no answer with a known key has option scores.
    """
    if "scores" not in answers.columns:
        return None
    scored = answers[[_has_scores(values) for values in answers["scores"]]]
    if not len(scored):
        return None
    graded = grade(
        family,
        questions[questions["question_id"].astype(str).isin(scored["question_id"].astype(str))],
        scored,
    )
    # Grading leaves out questions with a hidden key, so their answers have no row.
    rows = pd.Index(graded.columns["question_id"].astype(str)).get_indexer(scored["question_id"].astype(str))
    has_question, columns = rows >= 0, pd.factorize(scored["sample"], sort=True)[0]
    if not has_question.any():
        return None
    confidence = np.array([top_option_confidence(values) for values in scored["scores"]])[has_question]
    is_correct = graded.right[rows, columns][has_question].astype(float)
    bins = _calibration_bins(confidence, is_correct)
    ece = (bins["n"] * (bins["confidence"] - bins["accuracy"]).abs()).sum() / len(is_correct)
    curve = _risk_coverage(confidence, is_correct)
    # Step integral: ties make the steps unequal.
    widths = np.diff(curve["coverage"].to_numpy(), prepend=0.0)
    aurc = float((curve["risk"].to_numpy() * widths).sum() / 100)
    return Calibration(bins, float(ece), curve, aurc, len(is_correct))


def top_option_confidence(scores: Floats) -> float:
    """Return the probability (0..1) of the highest-scoring option.

    Scores that are not probabilities (negative, or not summing to 1) are taken as logits and
    normalized by softmax.

    Args:
        scores: One number per option.
    """
    values = np.asarray(scores, dtype=float)
    if (values < 0).any() or abs(values.sum() - 1) > 1e-3:
        # Subtract the maximum: exp() of large logits would overflow.
        values = np.exp(values - values.max())
        values = values / values.sum()
    return float(values.max())


def _has_scores(values: object) -> bool:
    return (
        isinstance(values, (list, tuple, np.ndarray))
        and len(values) > 1
        and bool(np.isfinite(np.asarray(values, float)).all())
    )


def _calibration_bins(confidence: Floats, is_correct: Floats) -> pd.DataFrame:
    # A confidence of exactly 1 belongs to the last bin.
    bin_index = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    table = pd.DataFrame({"bin": bin_index, "confidence": 100 * confidence, "accuracy": 100 * is_correct, "n": 1})
    return table.groupby("bin").agg({"confidence": "mean", "accuracy": "mean", "n": "sum"})


def _risk_coverage(confidence: Floats, is_correct: Floats) -> pd.DataFrame:
    order = np.argsort(-confidence, kind="stable")
    # Tied answers share one point of the curve, after the last of them.
    last_of_equal = np.flatnonzero(np.diff(confidence[order], append=-1.0) != 0)
    errors = np.cumsum(1 - is_correct[order])[last_of_equal]
    covered = last_of_equal + 1
    return pd.DataFrame({"coverage": 100 * covered / len(is_correct), "risk": 100 * errors / covered})
