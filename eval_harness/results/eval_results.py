"""A result as `.eval_results/*.yaml`, the Hub's form for scores in a model's repository. It has no field for interval, n or prompt: they
go into the notes."""

from __future__ import annotations

from pathlib import Path

import yaml

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from eval_harness.results import Result, Score, read_result
from eval_harness.scores import HEADLINE


def eval_result_entries(result: Result, dataset: str, task: str | None = None) -> list[dict[str, object]]:
    """One entry, for the benchmark's headline metric. Raises BadInput for a result that has none, or is of no complete official set."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    metric = HEADLINE[result.benchmark.format]
    score = result.scores.get(metric)
    if score is None or score.value is None:
        raise BadInput(f"the result has no {metric}, so there is nothing to export.")
    if result.benchmark.origin == "phantom" or result.benchmark.selection:
        what = "phantoms" if result.benchmark.origin == "phantom" else result.benchmark.selection
        raise BadInput(f"the result is of {what}: only scores of a complete, real benchmark belong on a model's page.")
    entry = EvalResultEntry(
        dataset_id=dataset,
        task_id=task or result.benchmark.split,
        value=round(score.value, 4),
        dataset_revision=result.benchmark.revision,
        date=result.created_at,
        notes=_notes(metric, score, result),
    )
    return eval_result_entries_to_yaml([entry])


def _notes(metric: str, score: Score, result: Result) -> str:
    method = result.method
    words = [f"{metric}, percent", f"n = {score.n} ({score.n_cases} cases)"]
    if score.low is not None and score.high is not None:
        words.append(f"95% interval {score.low:.1f}-{score.high:.1f}")
    if score.chance is not None:
        words.append(
            f"chance {score.chance:.2f}"
            + (f", {score.verdict} than chance" if score.verdict in ("better", "worse") else "")
        )
    words += [
        f"method {method.name}",
        f"prompt {method.prompt}",
        f"shots {method.shots or 0}",
        f"extraction {method.extraction}",
    ]
    return "; ".join(words + [f"deviation: {deviation}" for deviation in result.deviations])


def write_eval_results(place: Path, dataset: str, task: str | None, out: Path) -> Path:
    """Write the entries of a result (a run folder or a result.json) to `out`. Raises BadInput as `eval_result_entries` does."""
    result = read_result(place / "result.json" if place.is_dir() else place)
    text = yaml.safe_dump(eval_result_entries(result, dataset, task), sort_keys=False, allow_unicode=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, text.encode())
    return out
