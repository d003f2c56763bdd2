"""Resolve model names: synonyms, metadata, and unique labels of results in lists and typed queries.

Two tables in `published/`, both shown on the board, describe models. `model_names.csv`: a name as
written in results, the model it means, and the snapshot if the name states one. `model_facts.csv`:
month of first release and its source, licence, weights, paper. Cells without a confirmed value are
empty.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from eval_harness.records.result import Model, Result
from leaderboard_space.data.published_results import printed_table, published_models, read_table
from leaderboard_space.data.store.sections import Entry, display_names
from leaderboard_space.html import is_shown_as


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
