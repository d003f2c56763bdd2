"""Group results into sections that may be ranked together: one per set of questions.

See also: reading the store (`board.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dataset_builders import benchmarks
from dataset_builders.benchmarks import BENCHMARKS, DEFAULT_SPLITS
from dataset_builders.fingerprints import is_released_set
from eval_harness.derive.run_files import ANSWERS_FILE, UNITS_FILE
from eval_harness.records.result import Result
from eval_harness.store.acceptance import Provenance


@dataclass(frozen=True)
class Entry:
    """A result on the board. `key` is its path in the store (`benchmark/model/run`), or its number among the published ones."""

    key: str
    result: Result
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    """The board's notes on it: numbers that were left out."""
    provenance: Provenance = field(default_factory=Provenance)
    """The store's record of it: who submitted it, when it was accepted, whether it was withdrawn, notes."""

    derived: Path | None = None
    """Folder of its answers and what was derived from them: its own where a verifier accepted it, else one of the board's."""

    @cached_property
    def is_baseline(self) -> bool:
        """True if no model was asked."""
        return self.result.model.kind == "baseline"

    @cached_property
    def account(self) -> str | None:
        """Who submitted it; None for a paper's number and where the store does not say."""
        return self.provenance.acceptance.account if self.provenance.acceptance else None

    @property
    def answers(self) -> Path | None:
        return self.derived / ANSWERS_FILE if self.derived is not None else None

    @property
    def units(self) -> Path | None:
        return self.derived / UNITS_FILE if self.derived is not None else None


@dataclass(frozen=True, eq=False)
class Section:
    """Results on exactly the same questions. `kind`: complete, phantom, custom, partial, sample (of an official source), unconfirmed
    (official by its counts, and no released fingerprint is known to compare with), or retired."""

    key: str
    family: str
    benchmark: str
    split: str
    kind: str
    questions: int
    fingerprint: str | None
    entries: tuple[Entry, ...]
    arms: tuple[Entry, ...] = ()
    """Runs of its models with other images than the right ones: neither shown as results nor ranked."""
    selection: str | None = None
    stamp: str = ""
    """Digest of the state of the files that it is computed from; where one changes, the section is replaced."""

    @property
    def is_official(self) -> bool:
        """True if its questions are the benchmark's own whole set, as far as is known."""
        return self.kind in ("complete", "unconfirmed")

    def title(self) -> str:
        names = {
            "complete": "Complete official set",
            "phantom": "Phantoms (drawn images)",
            "custom": self.benchmark,
            "partial": "Part of the official set",
            "sample": "Sample (not the complete official set)",
            "unconfirmed": "Same size as the official set, unverified",
            "retired": "Retired (an earlier version of the dataset)",
        }
        return names[self.kind]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The board at one moment: sections per format, and a line for every file set aside."""

    stamp: str
    sections: Mapping[str, tuple[Section, ...]]
    problems: tuple[str, ...]

    @property
    def all_sections(self) -> list[Section]:
        """The sections of every format, in their order."""
        return [section for sections in self.sections.values() for section in sections]

    def section(self, family: str, key: str | None) -> Section | None:
        """The section of that key, else the first of the format; None where there is none."""
        found = self.sections.get(family, ())
        return next((section for section in found if section.key == key), found[0] if found else None)


def group_entries(
    entries: Iterable[Entry], is_replaced: Callable[[Result], bool] = lambda result: False
) -> list[Section]:
    """Sections from entries: one per benchmark, split and set of questions; the complete official set comes first.

    `is_replaced` says of a result that it answers an earlier version of its dataset; it is retired to a section of its own. A run with
    other images than the right ones is an arm of the section of those that have them.
    """
    groups: dict[tuple[str, str, str], tuple[str, list[Entry]]] = {}
    for entry in sorted(entries, key=lambda entry: entry.result.method.image != "real"):
        benchmark = entry.result.benchmark
        kind = "retired" if is_replaced(entry.result) else question_set_kind(entry.result)
        identity = (benchmark.family, benchmark.name, _section_key(entry, kind))
        groups.setdefault(identity, (kind, []))[1].append(entry)
    sections = [_build_section(key, kind, members) for (_, _, key), (kind, members) in groups.items()]
    order = {"complete": 0, "unconfirmed": 1, "sample": 2, "partial": 3, "custom": 4, "phantom": 5, "retired": 6}
    return sorted(
        (section for section in sections if section.entries),
        # Most results that can be broken down come first, since readers come to choose: one more result moves no default.
        key=lambda s: (
            order[s.kind],
            -sum(bool(entry.result.kind == "measured" or entry.result.breakdown) for entry in s.entries),
            s.split != DEFAULT_SPLITS.get(s.family),
            -len(s.entries),
            s.key,
        ),
    )


def _section_key(entry: Entry, kind: str) -> str:
    """The split and the set of questions of a result, unique within its benchmark's format."""
    benchmark = entry.result.benchmark
    fingerprint = benchmark.fingerprint[:12] if benchmark.fingerprint else None
    default = fingerprint or ("published" if entry.result.kind == "published" else entry.key)
    questions = {"complete": "complete", "retired": f"retired-{fingerprint}"}.get(kind, default)
    prefix = "" if benchmark.name in BENCHMARKS else f"{benchmark.name}."
    return f"{prefix}{benchmark.split}.{questions}"


def _build_section(key: str, kind: str, members: Sequence[Entry]) -> Section:
    """The section of `members`; one without `entries` if they are arms alone."""
    entries = tuple(entry for entry in members if entry.result.method.image == "real")  # they come first
    benchmarks_of = [entry.result.benchmark for entry in entries]
    first = members[0].result.benchmark
    return Section(
        key=key,
        family=first.family,
        benchmark=first.name,
        split=first.split,
        kind=kind,
        questions=max((benchmark.questions for benchmark in benchmarks_of), default=0),
        fingerprint=next((benchmark.fingerprint for benchmark in benchmarks_of if benchmark.fingerprint), None),
        entries=entries,
        arms=tuple(members[len(entries) :]),
        selection=first.selection,
    )


def question_set_kind(result: Result) -> str:
    """What a set of questions is. Only a released fingerprint, or a paper's own table, is the complete official set.

    Where no released fingerprint is known, a set whose builder found the paper's counts in it is `unconfirmed`.
    """
    benchmark = result.benchmark
    if benchmark.name != benchmark.family:
        return "phantom" if benchmark.origin == "phantom" else "custom"
    released = benchmarks.RELEASED_FINGERPRINTS.get((benchmark.family, benchmark.split))
    if is_released_set(benchmark.family, benchmark.split, benchmark.fingerprint):
        return "complete"
    if result.kind == "published" and benchmark.origin in (None, "official") and benchmark.selection is None:
        return "complete"
    if benchmark.origin == "phantom":
        return "phantom"
    if released is None and benchmark.origin == "official" and benchmark.selection is None:
        return "unconfirmed"
    # It carries the official name but not the released questions: some of them (a part, said by its selection), or a sample.
    return "partial" if benchmark.selection else "sample"
