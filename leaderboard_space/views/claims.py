"""The section "Claimed on the Hub": numbers that others state, apart from what was recomputed, and where the two differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dataset_builders.contents.eval_yaml import metric_of_task
from eval_harness.records.result import Result
from leaderboard_space.data.claims import Claim
from leaderboard_space.data.identity import identity, identity_of
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.html import number, text

AGREES = 0.005
"""Points within which a claim, which may be rounded to two decimals, and our number are the same."""


def is_of(claim: Claim, name: str) -> bool:
    """True if a claim is about the model that `name` means: it stands in the model's repository, or, where no table knows that
    repository, in one of the model's name."""
    who = identity(name)
    own = claim.model.rpartition("/")[2].casefold() == who.name.casefold()
    return identity_of(claim.model) == who.name or (own and not who.weights)


def recomputed(claim: Claim, results: Iterable[Result]) -> list[float]:
    """Our numbers for the same model, dataset and metric: one for each way it was asked."""
    found = []
    for result in results:
        benchmark = result.benchmark
        metric = metric_of_task(claim.task, benchmark.split)
        score = result.scores.get(metric) if metric else None
        measured = result.kind == "measured" and benchmark.selection is None and benchmark.repo == claim.dataset
        if measured and score is not None and score.value is not None and is_of(claim, result.model.name):
            found.append(score.value)
    return found


def difference(claim: Claim, ours: Sequence[float]) -> str:
    """What is to be said of a claim beside our numbers, in words."""
    if not ours:
        return "not recomputed"
    if any(abs(claim.value - value) <= AGREES for value in ours):
        return "agrees with the recomputed number"
    return f"differs from the recomputed {', '.join(number(value, 2) for value in sorted(set(ours)))}"


def section(claims: Iterable[Claim], entries: Iterable[Entry], problems: Mapping[str, str] | None = None) -> str:
    """The section as HTML; nothing where nothing is claimed and nothing went wrong. `entries`: the results to set beside the claims."""
    claims = list(claims)
    results = [entry.result for entry in entries if entry.provenance.withdrawal is None]
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
        '<div class="scroll"><table class="lines" aria-label="Claimed on the Hub"><thead><tr>'
        '<th scope="col">Model</th><th scope="col">Dataset</th><th scope="col">Task</th>'
        '<th scope="col">Claimed</th><th scope="col">Hub badge</th><th scope="col">Compared with ours</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    return (
        '<section class="claims"><h3>Claimed on the Hub</h3><p>Stated in models\' repositories; not computed here and not ranked. '
        f"<em>Verified</em> is the Hub's own badge; <em>community</em> means an open pull request or the model's own claim.</p>"
        f"{table if rows else ''}{said}</section>"
    )
