"""Assign results to the groups that are ranked together, and choose the result that represents each
model.

See also: scores and ranks (`standings.py`), what a store records about a result
(`eval_harness.store.acceptance`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from dataset_builders.benchmarks import FORMATS
from eval_harness.benchmarks import eval_spec
from eval_harness.records.result import DERIVE_VERSION, Result
from leaderboard_space.data.store.sections import Entry, Section

DEFAULT_PROMPTS = {name: eval_spec(name).default_prompts["mc"] for name in FORMATS}
"""Benchmark -> its template for the method `mc`."""

RankingGroup = Literal["ranked", "official reader", "judge model", "no score", "outdated", "withdrawn"]
GROUP_HEADINGS: dict[RankingGroup, str] = {
    "ranked": "",
    "official reader": "read by the authors' own reader: ranked separately",
    "judge model": "read by a judge model where rules read no option: ranked separately",
    "no score": "not ranked: most of the answers were cut off, failed, are missing or could not be read",
    "outdated": "derived by another version of medprobe: not ranked until `medprobe rescore` derives them again",
    "withdrawn": "withdrawn: not ranked",
}
"""The groups in their order on the page, with their headings."""
RANKED_GROUPS: tuple[RankingGroup, ...] = ("ranked", "official reader", "judge model")

Owner = tuple[str, str | None, str]
"""Identity of a row: model, account, kind of result."""


def ranking_group(entry: Entry) -> RankingGroup:
    """Return the group in which a result is listed."""
    method = entry.result.method
    if entry.provenance.withdrawal is not None:
        return "withdrawn"
    if entry.result.kind == "measured" and entry.result.derive_version != DERIVE_VERSION:
        return "outdated"
    if judge_label(entry.result):
        return "judge model"
    return "official reader" if method.extraction == "official" or method.name == "ps_official" else "ranked"


def judge_label(result: Result) -> str | None:
    """Format the judge model of a measured result with its prompt's name and hash; None without a
    judge.
    """
    judge = result.method.judge if result.kind == "measured" else None
    return None if judge is None else f"{judge.get('model')} (prompt {judge.get('prompt')} {judge.get('prompt_hash')})"


def row_owner(entry: Entry) -> Owner:
    """Return the identity of a result's row.

    Results without an acceptance have no account, like published ones. A model's recomputed result
    shares the row of its printed one, so that headlines and ranks count each model once.
    """
    kind = "printed" if entry.result.kind == "recomputed" else entry.result.kind
    return (entry.result.model.name, entry.account, kind)


def preference_key(entry: Entry) -> tuple[bool, bool, bool, bool, bool, bool, bool, str, str]:
    """Return the sort key for choosing the result that represents its model and account; the
    smallest is chosen.

    Reproduced results come first. A paper's best over methods, and multiple choice with the default
    prompt, our reader and one sample, precede other settings; variants that combine many samples or
    know the answers come last. Ties go to the result accepted first by the store's clock; results
    without a recorded acceptance follow, by their own date.
    """
    result, method, acceptance = entry.result, entry.result.method, entry.provenance.acceptance
    # Published results state no prompt or reader; they count as usual settings.
    usual = method.prompt in (None, DEFAULT_PROMPTS.get(result.benchmark.family)) and method.extraction in (
        None,
        "ours",
    )
    return (
        result.provenance != "reproduced",
        "variant" in method.generation,
        not (result.kind == "printed" and method.name == "best"),
        method.name != "mc",
        not usual,
        (method.samples or 1) != 1,
        acceptance is None,
        acceptance.accepted_at if acceptance else result.created_at,
        entry.key,
    )


def count_runs(section: Section) -> Counter[Owner]:
    """Count the runs of each model and account on these questions, over all methods, including
    withdrawn ones.
    """
    return Counter(row_owner(entry) for entry in section.entries if entry.result.kind == "measured")


def count_account_tries(section: Section) -> Counter[str]:
    """Count the results of each account on these questions, over all models, including withdrawn
    ones; empty if one account submitted all of them, as in a store of one's own.

    The best of many tries is too high by chance, whatever names they were submitted under.
    """
    tries = Counter(
        entry.account
        for entry in section.entries
        if entry.result.kind == "measured" and entry.account and not entry.is_reference
    )
    return tries if len(tries) > 1 else Counter()


def display_names(entries: Sequence[Entry]) -> dict[str, str]:
    """Name results, with the account of submitted ones if several accounts or papers are listed
    together.

    The account exposes a model name that imitates somebody else's.

    Returns:
        Entry key -> name.
    """
    sources = {entry.account or entry.result.kind for entry in entries}
    return {
        entry.key: f"{entry.result.model.name} ({entry.account})"
        if entry.account and len(sources) > 1
        else entry.result.model.name
        for entry in entries
    }
