"""The results on the board: which set of questions each belongs to, which are ranked together,
which one represents its model, and what results and models are called.

Two tables in `published/`, both shown on the board, describe models. `model_names.csv`: a name as
written in results, the model it means, and the snapshot if the name states one. `model_facts.csv`:
month of first release and its source, licence, weights, paper. Cells without a confirmed value are
empty.

See also: reading the store (`board.py`), ranking the results of a section (`standings.py`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from dataset_builders import benchmarks
from dataset_builders.benchmarks import DEFAULT_SPLITS, FORMATS
from dataset_builders.fingerprints import is_released_set
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.run_files import ANSWERS_FILE, UNITS_FILE
from eval_harness.records.result import DERIVE_VERSION, REFERENCE_KINDS, Model, Result, Score
from eval_harness.store.contents import Provenance
from leaderboard_space.data.published_results import printed_table, published_models, read_table
from leaderboard_space.html import is_shown_as


@dataclass(frozen=True)
class Entry:
    """A result on the board.

    `key`: its path in the store (`benchmark/model/run`), or its number if published.
    """

    key: str
    result: Result
    folder: Path | None = None
    notes: tuple[str, ...] = ()
    """Notes by the board, such as numbers that were left out."""
    provenance: Provenance = field(default_factory=Provenance)
    """The store's record: acceptance, with the submitter, and withdrawal."""

    derived: Path | None = None
    """Folder of its answers and derived files: its own if a verifier accepted it, else in the
    board's cache folder."""

    @cached_property
    def is_reference(self) -> bool:
        """True if a rule or a person answered: shown beside the models and never ranked."""
        return self.result.model.kind in REFERENCE_KINDS

    @cached_property
    def account(self) -> str | None:
        """The submitter's account; None for published and unverified results."""
        return self.provenance.acceptance.account if self.provenance.acceptance else None

    @property
    def answers(self) -> Path | None:
        return self.derived / ANSWERS_FILE if self.derived is not None else None

    @property
    def units(self) -> Path | None:
        return self.derived / UNITS_FILE if self.derived is not None else None


SET_TITLES = {
    "complete": "Complete official set",
    "unconfirmed": "Same size as the official set, unverified",
    "sample": "Sample (not the complete official set)",
    "partial": "Part of the official set",
    "custom": "",
    "phantom": "Phantoms (drawn images)",
    "retired": "Retired (an earlier version of the dataset)",
}
"""Kind of question set -> its title, in the order of the board; a custom set has its own name."""


@dataclass(frozen=True, eq=False)
class Section:
    """Results on exactly the same questions.

    `kind`: complete, phantom, custom, partial, sample (of an official source), unconfirmed
    (official by its counts, but no released fingerprint is known), or retired.
    """

    key: str
    family: str
    benchmark: str
    split: str
    kind: str
    questions: int
    fingerprint: str | None
    entries: tuple[Entry, ...]
    arms: tuple[Entry, ...] = ()
    """Runs of its models with withheld or wrong images: neither listed nor ranked."""
    selection: str | None = None
    stamp: str = ""
    """Digest of the files it is computed from; if one changes, the section is replaced."""

    @property
    def is_official(self) -> bool:
        """True if its questions are the benchmark's complete set, as far as is known."""
        return self.kind in ("complete", "unconfirmed")

    def title(self) -> str:
        return SET_TITLES[self.kind] or self.benchmark


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The board at one moment. `sections`: by benchmark; `problems`: one line per unusable file."""

    stamp: str
    sections: Mapping[str, tuple[Section, ...]]
    problems: tuple[str, ...]

    @property
    def all_sections(self) -> list[Section]:
        """The sections of all benchmarks, in order."""
        return [section for sections in self.sections.values() for section in sections]

    def section(self, family: str, key: str | None) -> Section | None:
        """Return the section with a key, else the benchmark's first; None if it has none."""
        sections = self.sections.get(family, ())
        return next((section for section in sections if section.key == key), sections[0] if sections else None)


def group_entries(
    entries: Iterable[Entry], is_replaced: Callable[[Result], bool] = lambda result: False
) -> list[Section]:
    """Group results into sections: one per benchmark, split and set of questions.

    Runs with withheld or wrong images become arms of the section with the real ones.

    Args:
        entries: The results.
        is_replaced: Returns True for results on an earlier version of their dataset, which become a
            retired section.

    Returns:
        The sections, complete official sets first.
    """
    groups: dict[tuple[str, str, str], tuple[str, list[Entry]]] = {}
    # Real images first: an arm joins the section that its model's result defines.
    for entry in sorted(entries, key=lambda entry: entry.result.method.image != "real"):
        benchmark = entry.result.benchmark
        kind = "retired" if is_replaced(entry.result) else question_set_kind(entry.result)
        identity = (benchmark.family, benchmark.name, _section_key(entry, kind))
        groups.setdefault(identity, (kind, []))[1].append(entry)
    sections = [_build_section(key, kind, members) for (_, _, key), (kind, members) in groups.items()]
    return sorted(
        (section for section in sections if section.entries),
        # Within a kind, the first set is the default: the one with most results that visitors can
        # break down, which a single new result rarely changes.
        key=lambda s: (
            list(SET_TITLES).index(s.kind),
            -sum(bool(entry.result.kind == "measured" or entry.result.breakdown) for entry in s.entries),
            s.split != DEFAULT_SPLITS.get(s.family),
            -len(s.entries),
            s.key,
        ),
    )


def _section_key(entry: Entry, kind: str) -> str:
    """Return the key of a result's split and questions, unique within its benchmark's format."""
    benchmark = entry.result.benchmark
    fingerprint = benchmark.fingerprint[:12] if benchmark.fingerprint else None
    default = fingerprint or ("published" if entry.result.provenance == "published" else entry.key)
    questions = {"complete": "complete", "retired": f"retired-{fingerprint}"}.get(kind, default)
    # Custom sets share the format of a benchmark, so their key needs their name.
    prefix = "" if benchmark.name in FORMATS else f"{benchmark.name}."
    return f"{prefix}{benchmark.split}.{questions}"


def _build_section(key: str, kind: str, members: Sequence[Entry]) -> Section:
    """Build a section from `members`, those with real images first; `entries` is empty if all are
    arms.
    """
    entries = tuple(entry for entry in members if entry.result.method.image == "real")  # they come first
    benchmark_records = [entry.result.benchmark for entry in entries]
    benchmark_of_first = members[0].result.benchmark
    return Section(
        key=key,
        family=benchmark_of_first.family,
        benchmark=benchmark_of_first.name,
        split=benchmark_of_first.split,
        kind=kind,
        questions=max((benchmark.questions for benchmark in benchmark_records), default=0),
        fingerprint=next((benchmark.fingerprint for benchmark in benchmark_records if benchmark.fingerprint), None),
        entries=entries,
        arms=tuple(members[len(entries) :]),
        selection=benchmark_of_first.selection,
    )


def question_set_kind(result: Result) -> str:
    """Classify a result's question set (`Section.kind`).

    Only a released fingerprint or a paper's own table counts as the complete official set. If no
    fingerprint was released, a set with the paper's counts is `unconfirmed`.
    """
    benchmark = result.benchmark
    if benchmark.name != benchmark.family:
        return "phantom" if benchmark.origin == "phantom" else "custom"
    released = benchmarks.RELEASED_FINGERPRINTS.get((benchmark.family, benchmark.split))
    if is_released_set(benchmark.family, benchmark.split, benchmark.fingerprint):
        return "complete"
    if result.provenance == "published" and benchmark.origin in (None, "official") and benchmark.selection is None:
        return "complete"
    if benchmark.origin == "phantom":
        return "phantom"
    if released is None and benchmark.origin == "official" and benchmark.selection is None:
        return "unconfirmed"
    # The official name, but not the released questions: a stated selection of them, or a sample.
    return "partial" if benchmark.selection else "sample"


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
    default = DEFAULT_PROMPTS.get(result.benchmark.family)
    usual = method.prompt in (None, default) and method.extraction in (None, "ours")
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


ALL_RESULTS, ONE_PER_MODEL = "all", "one"
"""Results to show: all, or one per model and account."""


@dataclass(frozen=True)
class Row:
    """One result in the standings.

    `best_rank`, `worst_rank`: the ranks it may hold among the models
    (`eval_harness.scores.comparisons.RankRanges`); None for baselines, without a value, with too
    few independent cases, or for metrics without a better direction. `from_answers`: the score was
    computed from the answers; otherwise it is the result's own or a published cell.
    """

    entry: Entry
    score: Score
    best_rank: int | None = None
    worst_rank: int | None = None
    from_answers: bool = False
    group: RankingGroup = "ranked"
    tried: int = 1
    """Runs of this model by its account on these questions."""
    account_tries: int = 0
    """Results of its account on these questions, of all models; 0 if they are not counted."""
    abstained: float | None = None
    answered_accuracy: float | None = None
    """Percent of responses that choose no option, and percent correct of those that do, on the same
    selection."""
    ends: tuple[int, ...] = ()
    """Counts of response outcomes (`grading.RESPONSE_COUNT_COLUMNS`) on the selection; empty
    without answers.
    """

    @property
    def run(self) -> tuple[float, float] | None:
        """The interval of the paper's random run if the verdict is against it, None if against
        exact chance.
        """
        return self.score.chance_interval

    @property
    def is_reference(self) -> bool:
        return self.entry.is_reference


@dataclass(frozen=True)
class ModelMetadata:
    """A model under its canonical name.

    `facts`: its row of `model_facts.csv`; empty if there is none.
    """

    name: str
    kind: str | None = None
    parameters: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    written: tuple[tuple[str, str | None], ...] = ()
    """Names under which results list the model, each with the snapshot that the name states."""


def canonical_name(name: str) -> str:
    """Return the canonical name of the model that a result calls `name`.

    Known names are case-insensitive; an unknown name is returned unchanged.

    >>> canonical_name("gpt-4o-2024-08-06"), canonical_name("gpt-4o"), canonical_name("My model")
    ('GPT-4o', 'GPT-4o', 'My model')
    """
    return _models_by_written_name().get(name.strip().casefold(), (name, None))[0]


def snapshot_of(model: Model) -> str | None:
    """Return the model snapshot that a result states, else the one that the model's name states."""
    return model.snapshot_date or _models_by_written_name().get(model.name.strip().casefold(), ("", None))[1]


def model_metadata(name: str, results: Iterable[Result] = ()) -> ModelMetadata:
    """Collect the metadata of a model.

    Args:
        name: Any of its names.
        results: Its results; kind and size come from the papers' table, else from the first result
            that has them.

    Returns:
        The metadata under the canonical name; kind and parameters are None if unknown.
    """
    name = canonical_name(name)
    facts = next((row for row in read_table("model_facts") if row["name"] == name), {})
    models = [
        *([published_models()[name]] if name in published_models() else []),
        *(result.model for result in results),
    ]
    return ModelMetadata(
        name,
        kind=next((model.kind for model in models if model.kind), None),
        parameters=next((model.parameters for model in models if model.parameters), None),
        facts=facts,
        written=tuple(
            (row["written"], row["snapshot"] or None) for row in read_table("model_names") if row["name"] == name
        ),
    )


@cache
def _models_by_written_name() -> dict[str, tuple[str, str | None]]:
    """Return case-folded written name -> (canonical name, snapshot if the name states one)."""
    canonical = {name.casefold(): (name, None) for name in published_models()}
    weights = {row["weights"].casefold(): (row["name"], None) for row in read_table("model_facts") if row["weights"]}
    aliases = {row["written"].casefold(): (row["name"], row["snapshot"] or None) for row in read_table("model_names")}
    # Later tables take precedence: a canonical name always means itself.
    return {**weights, **aliases, **canonical}


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


def entry_labels(entries: Sequence[Entry]) -> dict[str, str]:
    """Label every result uniquely: the model, then the settings that distinguish its results.

    Returns:
        Entry key -> label.
    """
    names = display_names(entries)
    # Method, prompt and source distinguish the results of one model.
    settings = {
        entry.key: tuple(filter(None, (entry.result.method.name, entry.result.method.prompt, entry_source(entry))))
        for entry in entries
    }
    name_counts = Counter(names[entry.key] for entry in entries)
    label_counts = Counter((names[entry.key], settings[entry.key]) for entry in entries)
    labels: dict[str, str] = {}
    for entry in entries:
        parts = [names[entry.key]]
        # Add settings only if the model has several results, the run id only if settings are equal.
        if name_counts[parts[0]] > 1:
            parts += settings[entry.key]
            if label_counts[names[entry.key], settings[entry.key]] > 1:
                parts.append(entry.key.rsplit("/", 1)[-1])
        if entry.provenance.withdrawal is not None:
            parts.append("withdrawn")
        labels[entry.key] = " · ".join(parts)
    return labels


def find_result(entries: Sequence[Entry], name: str) -> Entry | None:
    """Find a result by key, label, model name, or synonym of the model, in this order.

    Returns:
        The first match; None if nothing matches.
    """
    labels, model = entry_labels(entries), canonical_name(name)
    # From the most to the least specific: a key in an address, what a visitor chose, what they
    # typed.
    ways: tuple[Callable[[Entry], bool], ...] = (
        lambda entry: name in (entry.key, labels[entry.key]),
        lambda entry: is_shown_as(labels[entry.key], name),
        lambda entry: entry.result.model.name.lower() == name.lower(),
        lambda entry: canonical_name(entry.result.model.name) == model,
    )
    return next((entry for is_meant in ways for entry in entries if is_meant(entry)), None)


def entry_source(entry: Entry, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """Format the source of a result's number with the submitting account if known: `measured ·
    alice`.
    """
    mark = result_source(entry.result, metric, cell)
    return f"{mark} · {entry.account}" if mark in ("measured", "aggregate") and entry.account else mark


def result_source(result: Result, metric: str | None = None, cell: tuple[str, str] | None = None) -> str:
    """Format the source of a number: `printed · T1`, `recomputed`,
    `measured` (submitted), `measured · by us`.

    Args:
        result: The result that the number belongs to.
        metric: If given, only the table that prints this number is named, else all tables of the
            result.
        cell: (facet, value) of a breakdown number.
    """
    if result.kind == "printed":
        table = printed_table(result, metric, *(cell or ("", ""))) if metric else None
        tables = re.findall(r"[0-9]+", table or (result.source.table if result.source else None) or "")
        # Long lists are shortened to fit a table cell.
        numbers = ", ".join(tables) if len(tables) < 4 else f"{', '.join(tables[:2])} … {tables[-1]}"
        return f"printed · T{numbers}" if tables else "printed"
    if result.kind in ("recomputed", "aggregate"):
        return result.kind
    return "measured · by us" if result.provenance == "reproduced" else "measured"
