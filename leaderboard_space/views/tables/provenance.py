"""Describe a result's origin: the tag that distinguishes it from its model's other results, and its
full provenance."""

from collections import Counter
from collections.abc import Mapping, Sequence

from eval_harness.records.result import Result
from eval_harness.store.contents import Provenance
from leaderboard_space.data.model_names import entry_source
from leaderboard_space.data.ranks.standings import method_name
from leaderboard_space.data.store.sections import Entry, Section, judge_label, ranking_group
from leaderboard_space.data.tree import TreePath
from leaderboard_space.html import count, number, plural, text
from leaderboard_space.views.parts import compare_address


def distinguishing_tags(entries: Sequence[Entry]) -> dict[str, str]:
    """Return entry key -> the settings that distinguish a result from the others.

    Settings such as method, prompt and extraction are named only if they are not the same for all
    results.

    Results of one model with the same settings are distinguished by the names of their runs. A
    judge is always named.
    """
    results = {entry.key: entry.result for entry in entries}
    methods = [result.method for result in results.values()]
    # If every method has one prompt, the prompt adds nothing to the method.
    is_prompt_varied = len({(method.name, method.prompt) for method in methods}) > len(
        {method.name for method in methods}
    )
    parts = {
        entry.key: (
            method_name(entry.result.method.name),
            str(entry.result.method.generation.get("variant", "")),
            entry.result.method.prompt if is_prompt_varied else None,
            f"{entry.result.method.extraction} extraction"
            if entry.result.method.extraction not in (None, "ours")
            else "",
            f"{entry.result.method.shots} shots" if entry.result.method.shots else "",
            f"{entry.result.method.samples} samples" if (entry.result.method.samples or 1) > 1 else "",
            f"derive version {entry.result.derive_version}" if ranking_group(entry) == "outdated" else "",
        )
        for entry in entries
    }
    is_varied = [len(set(values)) > 1 for values in zip(*parts.values(), strict=True)]

    def tag(entry: Entry) -> str:
        judge = judge_label(entry.result)
        varied = [part for part, differs in zip(parts[entry.key], is_varied, strict=True) if differs]
        return " · ".join(filter(None, (*varied, f"read by judge {judge}" if judge else "")))

    identities = {entry.key: (entry.result.model.name, tag(entry), entry_source(entry)) for entry in entries}
    # If two results still have the same tag, add the names of their runs.
    twins = Counter(identities.values())
    runs = {key: key.rsplit("/", 1)[-1] if twins[row] > 1 else "" for key, row in identities.items()}
    return {key: " · ".join(filter(None, (row[1], runs[key]))) for key, row in identities.items()}


def source_tables(result: Result) -> str:
    """Return the paper's tables that print a published result; "" for other results."""
    return (result.source.table or "") if result.source else ""


def provenance_details(
    entry: Entry, section: Section, metric: str | None = None, branches: Sequence[TreePath] = ()
) -> str:
    """Draw the provenance of a result: model, method, questions, source, and the store's records.

    Args:
        entry: The result.
        section: Its question set.
        metric: The score that the page shows.
        branches: The selection that the page shows.
    """
    result = entry.result
    method, model, benchmark = result.method, result.model, result.benchmark
    is_measured, source = result.kind == "measured", result.source
    facts: list[tuple[str, object]] = [
        ("Run", entry.key),
        (
            "Model",
            " ".join(str(part) for part in (model.name, model.revision, model.snapshot_date) if part),
        ),
        ("Parameters", count(model.parameters) if model.parameters else None),
        ("Method", method.name),
        ("Prompt", method.prompt),
        ("Shots", method.shots),
        ("Samples", method.samples),
        ("Extraction", method.extraction),
        ("Judge", _settings(method.judge)),
        ("Generation", _settings(method.generation)),
        (
            "Answers",
            ", ".join(f"{count(n)} {status}" for status, n in result.statuses.items() if n),
        ),
        ("Options in every order", _option_orders(result.environment.get("permuted"))),
        ("Deviations", "; ".join(result.deviations)),
        ("Questions", f"{count(benchmark.questions)}, {benchmark.split}"),
        ("Fingerprint", benchmark.fingerprint),
        ("Dataset", " ".join(str(part) for part in (benchmark.repo, benchmark.revision) if part)),
        ("Derive version", result.derive_version if is_measured else None),
        *_store_facts(entry.provenance),
        ("Made (as submitted)", result.created_at) if is_measured else ("Published", result.created_at[:10]),
        ("Command", result.command),
        ("Runs combined", ", ".join(result.run_ids or [])),
        *([("Source", source.citation), ("Table", source.table), ("Note", source.note)] if source else []),
    ]
    items = "".join(
        f"<div><dt>{name}</dt><dd>{text(value, 2200 if name in LONG_FACTS else 600)}</dd></div>"
        for name, value in facts
        if value not in (None, "")
    )
    address = compare_address(section, metric, branches, first=entry.key)
    return f'<p><a class="link" href="{address}">Compare with another result</a></p><dl class="detail">{items}</dl>'


LONG_FACTS = ("Withdrawn", "Note")
"""Facts that are shown in full, because they are sentences that a person wrote."""


def _store_facts(provenance: Provenance) -> list[tuple[str, object]]:
    """List who submitted a result and when, the store's flags, remarks, and its withdrawal."""
    acceptance, withdrawal = provenance.acceptance, provenance.withdrawal
    facts: list[tuple[str, object]] = []
    if acceptance is not None:
        facts += [
            ("Submitted by", acceptance.account),
            ("Added", acceptance.accepted_at),
            ("Verified by", acceptance.verified_by),
            *(("Flagged", flag) for flag in acceptance.flags),
        ]
    if withdrawal is not None:
        facts.append(("Withdrawn", f"{withdrawal.withdrawn_at} by {withdrawal.account}: {withdrawal.reason}"))
    return facts


def _settings(settings: Mapping[str, object] | None) -> str | None:
    """Format settings: `temperature 0, max tokens 512`; None if there are none."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in (settings or {}).items()) or None


def _option_orders(permuted: object) -> str | None:
    """Describe a run with the options in every order; None for other runs.

    It shows whether the model chooses an option, or rather a letter.
    """
    if not isinstance(permuted, dict):
        return None

    def share(name: str) -> str:
        value = permuted.get(name)
        return f"{number(value)}%" if isinstance(value, int | float) and not isinstance(value, bool) else "–"

    n_questions = permuted.get("questions")
    questions = f" of {plural(n_questions, 'question')} answered in every order" if isinstance(n_questions, int) else ""
    return f"same option {share('same_option')}, same letter {share('same_letter')}{questions}"
