"""Export tables as JSON and as CSV (safe against formula injection), with citations."""

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dataset_builders.benchmarks import BENCHMARKS, spec as dataset_spec
from dataset_builders.errors import BadInput
from eval_harness.records.result import Score
from eval_harness.store.results_table import escape_formula
from leaderboard_space import sentences
from leaderboard_space.data.published_results import printed_table
from leaderboard_space.data.sections import Entry, Row, Section, judge_label
from leaderboard_space.data.standings import Standings, metric_sights, own_cell
from leaderboard_space.data.tree import PATH_SEPARATOR, TreePath

Table = list[dict[str, Any]]


def format_selection(branches: Sequence[TreePath]) -> str:
    """Format a selection with the source's own labels: "modality=CT; department=Ophthalmology >
    MRI".

    Returns:
        The text; empty if everything is selected.
    """
    return "; ".join(f"{facet}={PATH_SEPARATOR.join(labels)}" for facet, *labels in branches)


def breakdown_table(
    section: Section,
    entries: Sequence[Entry],
    facet: str,
    cells: Mapping[str, Mapping[str, Score]],
    metric: str | None,
    branches: Sequence[TreePath] = (),
) -> Table:
    """Convert a breakdown to plain rows, one per result and cell.

    Args:
        section: The question set.
        entries: The results, in order.
        facet: The facet of the columns.
        cells: Column -> entry key -> score.
        metric: The metric; None if the columns are metrics.
        branches: The selection.
    """
    selection = format_selection(branches)
    rows: Table = []
    for entry in entries:
        for column, scores in cells.items():
            if entry.key in scores:
                cell = (facet, column) if metric else None
                about = {
                    "selection": selection,
                    "facet": facet if metric else None,
                    "facet_value": column if metric else None,
                }
                rows.append(about | number_columns(section, entry, metric or column, scores[entry.key], cell))
    return rows


def number_columns(
    section: Section, entry: Entry, metric: str, score: Score, cell: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Describe a number as table columns: its questions, result and source.

    Args:
        section: The question set.
        entry: The result.
        metric: The metric.
        score: The number.
        cell: (facet, value) of a breakdown number.
    """
    result, (chance_low, chance_high) = entry.result, score.chance_interval or (None, None)
    names = ("value", "low", "high", "n", "n_cases", "n_effective", "chance", "verdict")
    return {
        "benchmark": section.benchmark,
        "split": section.split,
        "set": section.kind,
        "model": result.model.name,
        "model_kind": result.model.kind,
        "method": result.method.name,
        "metric": metric,
        **{name: getattr(score, name) for name in names},
        "chance_low": chance_low,
        "chance_high": chance_high,
        "no_score": sentences.no_score_reason(score, result) or None,
        "kind": result.kind,
        "provenance": result.provenance,
        "source": result.source.citation if result.source else None,
        "table": printed_table(result, metric, *(cell or ("", ""))) if result.provenance == "published" else None,
        "run": entry.key,
    }


FILE_TYPES = {"csv": "text/csv", "json": "application/json", "md": "text/markdown", "txt": "text/plain"}
"""Ending of a saved file -> its media type."""


def named_file(name: str, ending: str, content: str) -> dict[str, str]:
    """Describe a file that the browser saves.

    Args:
        name: Its name without `medprobe-` and ending; unsafe characters are replaced, since names
            of models and labels come from submissions.
        ending: A key of FILE_TYPES.
        content: The text.

    Returns:
        `name`, `text` and `type`.
    """
    safe_name = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:100]
    return {"name": f"medprobe-{safe_name}.{ending}", "text": content, "type": FILE_TYPES[ending]}


def table_file(table: Table, name: str, form: str) -> dict[str, str]:
    """Format a table as a file (`named_file`): JSON if `form` is json, otherwise CSV.

    Raises:
        BadInput: If the table has no rows.
    """
    if not table:
        raise BadInput("this table is empty, so there is nothing to save. Choose another selection or another score.")
    if form == "json":
        return named_file(name, form, format_json(table))
    return named_file(name, "csv", format_csv(table))


def leaderboard_table(section: Section, standings: Standings, branches: Sequence[TreePath]) -> Table:
    """Convert standings to plain rows, with everything that the numbers depend on."""
    selection = format_selection(branches)
    # Runs with wrong or no images are compared on the whole set only.
    seen = {} if branches else metric_sights(section, standings.metric)
    rows = []
    for row in standings.rows:
        sight, method = seen.get(row.entry.key), row.entry.result.method
        columns = number_columns(section, row.entry, standings.metric, row.score, own_cell(row.entry, branches))
        source = row.entry.result.source if row.entry.result.provenance == "published" else None
        rows.append(
            {
                **columns,
                "fingerprint": section.fingerprint,
                "selection": selection,
                "prompt": method.prompt,
                "extraction": method.extraction,
                "judge": judge_label(row.entry.result),
                "place_first": row.best_rank,
                "place_last": row.worst_rank,
                "from_image": sight and sight.value,
                "from_image_low": sight and sight.low,
                "from_image_high": sight and sight.high,
                **_store_columns(row),
                # If no table prints this number, name those of the result.
                "table": columns["table"] or (source and source.table),
                "interval_method": row.score.interval_method,
            }
        )
    return rows


def _store_columns(row: Row) -> dict[str, Any]:
    """Return the columns on a result's group, account, acceptance and withdrawal."""
    provenance, result = row.entry.provenance, row.entry.result
    acceptance, withdrawal = provenance.acceptance, provenance.withdrawal
    return {
        "group": row.group,
        "derive_version": result.derive_version if result.kind == "measured" else None,
        "runs_tried": row.tried if result.kind == "measured" else None,
        "abstained": row.abstained,
        "answered_accuracy": row.answered_accuracy,
        "account": acceptance.account if acceptance else None,
        "accepted_at": acceptance.accepted_at if acceptance else None,
        "flags": "; ".join(acceptance.flags) if acceptance else None,
        "withdrawn": withdrawal.reason if withdrawal else None,
    }


def format_csv(table: Table) -> str:
    """Format rows as CSV with a header line.

    Texts that a spreadsheet would run as formulas get a leading apostrophe.
    """
    out = io.StringIO()
    # Rows of different kinds may have different columns: take all, in order of appearance.
    writer = csv.DictWriter(
        out, fieldnames=list(dict.fromkeys(name for row in table for name in row)), lineterminator="\r\n"
    )
    writer.writeheader()
    writer.writerows([{name: escape_formula(value) for name, value in row.items()} for row in table])
    return out.getvalue()


def format_json(table: Table) -> str:
    """Format rows as a JSON list of objects, unrounded."""
    # JSON cannot represent NaN and infinities.
    plain = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in table
    ]
    return json.dumps(plain, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def name_set(section: Section) -> str:
    """Name a question set in citations and in the notes of saved plots."""
    return f"{section.benchmark} ({section.split}), {section.title().lower()}"


def set_citation(
    section: Section, title: str, note: str, entries: Sequence[Entry], request: Mapping[str, Any]
) -> dict[str, str]:
    """Cite a page on one question set (`citation_file`), whose fingerprint is added to `note`."""
    questions = f" Questions: fingerprint {section.fingerprint}." if section.fingerprint else ""
    return citation_file(title, note + questions, entries, request)


def citation_file(title: str, note: str, entries: Sequence[Entry], request: Mapping[str, Any]) -> dict[str, str]:
    """Cite a page in BibTeX: the board itself, then the papers of its numbers.

    Args:
        title: The page's title.
        note: The selection shown.
        entries: The results shown.
        request: The browser's request; `link` is the page's address.

    Returns:
        `name` (empty), `text` and `type`.
    """
    # A citation needs the day: results are added to the board at any time.
    day, link = datetime.now(UTC).date().isoformat(), str(request.get("link") or "")[:4000]
    # Only printed numbers are the paper's; others have sources of their own.
    cited_papers = {
        entry.result.source.citation: entry.result.benchmark.family if entry.result.kind == "printed" else ""
        for entry in entries
        if entry.result.source
    }
    papers = [bibtex_entry(family, citation) for citation, family in sorted(cited_papers.items())]
    address = f"  url = {{{_escape_bibtex(link)}}},\n" if link else ""
    lines = [
        f"@misc{{medprobe_{re.sub(r'[^a-z0-9]+', '_', title.lower())[:40].strip('_')}_{day.replace('-', '')},\n"
        f"  title = {{{{medprobe board}}: {_escape_bibtex(title)}}},\n  note = {{{_escape_bibtex(note)}}},\n{address}"
        f"  year = {{{day[:4]}}},\n  urldate = {{{day}}}\n}}"
    ]
    bibtex = "\n\n".join([*lines, *dict.fromkeys(papers)])
    return {"name": "", "text": bibtex, "type": "text/plain"}


def plot_note(section: Section, standings: Standings, branches: Sequence[TreePath]) -> str:
    """Describe a plot for its saved file: question set, selection, and papers of its numbers."""
    papers = sorted({row.entry.result.source.citation for row in standings.rows if row.entry.result.source})
    selection = f" Selection: {format_selection(branches)}." if branches else ""
    numbers = f" Numbers of: {' '.join(papers)}" if papers else ""
    return f"{name_set(section)}.{selection}{numbers}"


def bibtex_entry(family: str, citation: str) -> str:
    """Return a benchmark paper's BibTeX entry; for other results, their citation as a note."""
    if family in BENCHMARKS:
        return dataset_spec(family).card.citation
    return f"@misc{{source,\n  note = {{{_escape_bibtex(citation)}}}\n}}"


def _escape_bibtex(text: str) -> str:
    """Remove characters that would end a BibTeX field."""
    return re.sub(r"[{}\\]", "", text)
