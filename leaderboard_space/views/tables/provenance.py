"""Describe a result's origin: in two words beside it, what distinguishes it from its model's other results, and its full details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from eval_harness.records.result import Result
from eval_harness.store.acceptance import Provenance
from leaderboard_space.data.model_names import entry_mark
from leaderboard_space.data.ranks.groups import group_of, judge_of
from leaderboard_space.data.ranks.standings import shown_method
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import TreePath
from leaderboard_space.html import count, number, plural, text
from leaderboard_space.views.parts import compare_address


def tags(entries: Sequence[Entry]) -> dict[str, str]:
    """What distinguishes results: of the method, the prompt, the extraction and the like those that are not the same for all. Results of
    one model that all this does not distinguish are named by their run. A judge is always named."""
    results, by_key = {entry.key: entry.result for entry in entries}, {entry.key: entry for entry in entries}
    varied_prompt = len({(r.method.name, r.method.prompt) for r in results.values()}) > len(
        {r.method.name for r in results.values()}
    )
    parts = {
        key: (
            shown_method(result.method.name),
            str(result.method.generation.get("variant", "")),
            result.method.prompt if varied_prompt else None,
            f"{result.method.extraction} extraction" if result.method.extraction not in (None, "ours") else "",
            f"{result.method.shots} shots" if result.method.shots else "",
            f"{result.method.samples} samples" if (result.method.samples or 1) > 1 else "",
            f"derive version {result.derive_version}" if group_of(by_key[key]) == "outdated" else "",
        )
        for key, result in results.items()
    }
    differing = [len(set(held)) > 1 for held in zip(*parts.values(), strict=True)]
    found = {
        key: " · ".join(part for part, differs in zip(held, differing, strict=True) if part and differs)
        for key, held in parts.items()
    }
    for key, result in results.items():
        if judge := judge_of(result):
            found[key] = " · ".join(part for part in (found[key], f"read by judge {judge}") if part)
    said = {key: (results[key].model.name, tag, entry_mark(by_key[key])) for key, tag in found.items()}
    alike = Counter(said.values())
    for key, tag in found.items():
        if alike[said[key]] > 1:
            found[key] = " · ".join(part for part in (tag, key.rsplit("/", 1)[-1]) if part)
    return found


def tables_title(result: Result) -> str:
    """The tables of a published result, as a title to read them all."""
    return f' title="{text(result.source.table, 200)}"' if result.source and result.source.table else ""


def detail(entry: Entry, section: Section, metric: str | None = None, branches: Sequence[TreePath] = ()) -> str:
    """The provenance of one result, as a list of what was said and how. `metric`, `branches`: what the page shows of it."""
    result = entry.result
    method, model, benchmark = result.method, result.model, result.benchmark
    pairs: list[tuple[str, object]] = [
        ("Run", entry.key),
        ("Model", " ".join(str(x) for x in (model.name, model.revision, model.snapshot_date) if x)),
        ("Parameters", count(model.parameters) if model.parameters else None),
        ("Method", method.name),
        ("Prompt", method.prompt),
        ("Shots", method.shots),
        ("Samples", method.samples),
        ("Extraction", method.extraction),
        ("Judge", _settings(method.judge)),
        ("Generation", _settings(method.generation)),
        ("Answers", ", ".join(f"{count(n)} {name}" for name, n in result.statuses.items() if n)),
        ("Options in every order", _permuted(result.environment.get("permuted"))),
        ("Deviations", "; ".join(result.deviations)),
        ("Questions", f"{count(benchmark.questions)}, {benchmark.split}"),
        ("Fingerprint", benchmark.fingerprint),
        ("Dataset", " ".join(str(x) for x in (benchmark.repo, benchmark.revision) if x)),
        ("Derive version", result.derive_version if result.kind == "measured" else None),
        *_said_by_store(entry.provenance),
        ("Made (as submitted)", result.created_at)
        if result.kind == "measured"
        else ("Published", result.created_at[:10]),
        ("Command", result.command),
        ("Runs combined", ", ".join(result.run_ids or [])),
    ]
    if result.source:
        pairs += [("Source", result.source.citation), ("Table", result.source.table), ("Note", result.source.note)]
    items = "".join(
        f"<div><dt>{name}</dt><dd>{text(value, 2200 if name in LONG else 600)}</dd></div>"
        for name, value in pairs
        if value not in (None, "")
    )
    address = compare_address(section, metric, branches, first=entry.key)
    return f'<p><a class="link" href="{address}">Compare with another result</a></p><dl class="detail">{items}</dl>'


LONG = ("Withdrawn", "Note")
"""What is shown in full: a reason or a remark of the greatest length."""


def _said_by_store(provenance: Provenance) -> list[tuple[str, object]]:
    """Who submitted a result, when it landed, what its checks found, what was remarked, and whether it was taken back."""
    acceptance, withdrawal = provenance.acceptance, provenance.withdrawal
    pairs: list[tuple[str, object]] = []
    if acceptance is not None:
        pairs += [
            ("Submitted by", acceptance.account),
            ("Added", acceptance.accepted_at),
            ("Verified by", acceptance.verified_by),
        ]
        pairs += [("Flagged", flag) for flag in acceptance.flags]
    if withdrawal is not None:
        pairs.append(("Withdrawn", f"{withdrawal.withdrawn_at} by {withdrawal.account}: {withdrawal.reason}"))
    return pairs + [("Note", f"{note.written_at} by {note.account}: {note.text}") for note in provenance.notes]


def _settings(held: Mapping[str, object] | None) -> str | None:
    """Settings in words: `temperature 0, max tokens 512`."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in (held or {}).items()) or None


def _permuted(found: object) -> str | None:
    """What a run with the options in every order says: does the model choose the option, or the letter? None for other runs."""
    if not isinstance(found, dict):
        return None

    def share(name: str) -> str:
        value = found.get(name)
        return f"{number(value)}%" if isinstance(value, int | float) and not isinstance(value, bool) else "–"

    asked = found.get("questions")
    of = f" of {plural(asked, 'question')} answered in every order" if isinstance(asked, int) else ""
    return f"same option {share('same_option')}, same letter {share('same_letter')}{of}"
