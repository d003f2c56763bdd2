"""The section "Claimed on the Hub": numbers that others state, apart from what was recomputed, and where the two differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dataset_builders.eval_yaml import metric_of_task
from eval_harness.results import Result
from leaderboard_space.data.claims import Claim
from leaderboard_space.html import number, text

AGREES = 0.005
"""Points within which a claim, which may be rounded to two decimals, and our number are the same."""


def recomputed(claim: Claim, results: Iterable[Result]) -> float | None:
    """Our number for the same model, dataset and metric (the first result that has it); None where there is none."""
    for result in results:
        benchmark = result.benchmark
        metric = metric_of_task(claim.task, benchmark.split)
        score = result.scores.get(metric) if metric else None
        same = benchmark.repo == claim.dataset and result.model.name.casefold() in (
            claim.model.casefold(),
            claim.model.split("/")[1].casefold(),
        )
        if same and result.kind == "measured" and benchmark.selection is None and score is not None:
            return score.value
    return None


def difference(claim: Claim, ours: float | None) -> str:
    """What is to be said of a claim beside our number, in words; nothing where we have none."""
    if ours is None:
        return "not recomputed"
    if abs(claim.value - ours) <= AGREES:
        return "agrees with the recomputed number"
    return f"differs from the recomputed {number(ours, 2)}"


def section(claims: Iterable[Claim], results: Iterable[Result], problems: Mapping[str, str] | None = None) -> str:
    """The section as HTML; nothing where nothing is claimed and nothing went wrong."""
    claims, results = list(claims), list(results)
    rows = "".join(
        f'<tr><th scope="row">{text(claim.model)}</th><td>{text(claim.dataset)}</td><td>{text(claim.task or "not said")}</td>'
        f'<td class="num">{number(claim.value, 2)}</td><td>{"verified" if claim.verified else "community"}'
        f"{f', pull request {claim.pull_request}' if claim.pull_request else ''}</td>"
        f"<td>{text(difference(claim, recomputed(claim, results)))}</td></tr>"
        for claim in claims
    )
    said = "".join(f"<p>Not read: {text(line, 300)}</p>" for line in (problems or {}).values())
    if not rows and not said:
        return ""
    table = (
        '<table><thead><tr><th scope="col">Model</th><th scope="col">Dataset</th><th scope="col">Task</th>'
        '<th scope="col">Claimed</th><th scope="col">Badge of the Hub</th><th scope="col">Beside ours</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    return (
        '<section class="claims"><h2>Claimed on the Hub</h2><p>Stated in models\' repositories; not computed here and in no ranking. '
        f"<em>Verified</em> is the Hub's word; <em>community</em> is an open pull request or the model's own.</p>{table if rows else ''}"
        f"{said}</section>"
    )
