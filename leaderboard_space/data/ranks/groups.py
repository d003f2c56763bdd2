"""Which results are ranked together, and which of a model's results stands for it.

See also: scores and ranks (`standings.py`), what a store says of a result (`eval_harness.results.landing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from eval_harness.prompts import DEFAULT_PROMPT
from eval_harness.records.result import Result
from leaderboard_space.data.store.sections import Entry, Section

Group = Literal["ranked", "official reader", "older reader", "withdrawn"]
GROUPS: dict[Group, str] = {
    "ranked": "",
    "official reader": "read by the authors' own reader: ranked separately",
    "older reader": "read by an older reader: not ranked until their answers are re-read",
    "withdrawn": "withdrawn: not ranked",
}
"""The groups in their order on the page, with what heads them there."""
WITH_RANKS: tuple[Group, ...] = ("ranked", "official reader")

FIRST_READER = 1
"""The reader of results that name none."""

Owner = tuple[str, str | None, str]
"""What one row stands for: model, account, kind of result."""


def reader_of(result: Result) -> int | None:
    """The version of the reader that decided what a result's answers say; None where none did: printed numbers, options chosen by their
    likelihood, and answers that a judge model read, which no reader of ours reads again."""
    method = result.method
    if result.kind != "measured" or method.name in ("gd", "ps", "ps_official") or method.judge:
        return None
    return result.reader_version or FIRST_READER


def newest_reader(entries: Iterable[Entry]) -> int:
    """The reader whose results are ranked: the newest that read any of them."""
    return max((version for entry in entries if (version := reader_of(entry.result))), default=FIRST_READER)


def group_of(entry: Entry, newest: int) -> Group:
    """Where a result stands. `newest`: the reader whose results are ranked."""
    method = entry.result.method
    if entry.provenance.withdrawal is not None:
        return "withdrawn"
    if (reader_of(entry.result) or newest) < newest:
        return "older reader"
    return "official reader" if method.extraction == "official" or method.name == "ps_official" else "ranked"


def owner_of(entry: Entry) -> Owner:
    """Whose result of which model it is. A result of a store that kept no landings has no account, like a paper's."""
    return (entry.result.model.name, entry.account, entry.result.kind)


def order_of(entry: Entry) -> tuple[bool, bool, bool, bool, bool, bool, bool, str, str]:
    """How well a result stands for its model and account; the smallest does.

    What the store's owner reproduced comes first. A paper's best over methods, and multiple choice with the benchmark's default prompt,
    our reader and one sample, come before other settings; what combines many samples or knows the answers (a `variant`) last. Then the one
    that landed earliest by the store's own clock. Results that landed before landings were written down come after those, the earliest by
    its own date first: nothing new can join them.
    """
    result, method, landing = entry.result, entry.result.method, entry.provenance.landing
    usual = method.prompt in (None, DEFAULT_PROMPT.get(result.benchmark.family)) and method.extraction in (None, "ours")
    return (
        result.provenance != "reproduced",
        "variant" in method.generation,
        not (result.kind == "published" and method.name == "best"),
        method.name != "mc",
        not usual,
        (method.samples or 1) != 1,
        landing is None,
        landing.landed_at if landing else result.created_at,
        entry.key,
    )


@dataclass(frozen=True)
class Grouped:
    """What a result is among those of its section, whatever is selected. `order`: as `order_of` gives it; `tried`: how many runs of this
    model its account has in the store on these questions, withdrawn ones and all methods included."""

    group: Group
    owner: Owner
    order: tuple[object, ...]
    tried: int


def grouped(section: Section) -> dict[str, Grouped]:
    """Entry key -> what the result is among the others. Computed once per section."""
    if "grouped" not in section.memory:
        newest = newest_reader(section.entries)
        tried = Counter(owner_of(entry) for entry in section.entries if entry.result.kind == "measured")
        section.memory["grouped"] = {
            entry.key: Grouped(group_of(entry, newest), owner_of(entry), order_of(entry), tried.get(owner_of(entry), 1))
            for entry in section.entries
        }
    found: dict[str, Grouped] = section.memory["grouped"]
    return found


def called(entries: Sequence[Entry]) -> dict[str, str]:
    """Entry key -> the name to call a result by. Where results of several accounts, or of papers, stand together, a submitted one is named
    with its account: a name that looks like another's says whose it is."""
    sources = {entry.account or entry.result.kind for entry in entries}
    return {
        entry.key: f"{entry.result.model.name} ({entry.account})"
        if entry.account and len(sources) > 1
        else entry.result.model.name
        for entry in entries
    }
