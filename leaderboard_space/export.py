"""Tables as files: CSV that no spreadsheet executes, JSON, and the words to cite them with."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.benchmarks import spec as dataset_spec
from dataset_builders.errors import BadInput
from eval_harness.records.result import Result, Score
from eval_harness.store.results_table import escape_formula
from leaderboard_space import sentences
from leaderboard_space.data.published_results import printed_table
from leaderboard_space.data.ranks.groups import judge_label
from leaderboard_space.data.ranks.sights import metric_sights
from leaderboard_space.data.ranks.standings import Row, Standings, own_cell
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import PATH_SEPARATOR, TreePath

Table = list[dict[str, Any]]


def format_selection(branches: Sequence[TreePath]) -> str:
    """The selection by the source's own labels ("modality=CT; department=Ophthalmology > MRI"); empty for everything."""
    return "; ".join(f"{facet}={PATH_SEPARATOR.join(labels)}" for facet, *labels in branches)


def breakdown_table(
    section: Section,
    entries: Sequence[Entry],
    facet: str,
    cells: Mapping[str, Mapping[str, Score]],
    metric: str | None,
    branches: Sequence[TreePath] = (),
) -> Table:
    """A breakdown as plain rows, one per result and cell. `cells`: column -> entry key -> score; `metric` None: the columns are metrics."""
    where = format_selection(branches)
    rows: Table = []
    for entry in entries:
        for column, scores in cells.items():
            if entry.key in scores:
                cell = (facet, column) if metric else None
                about = {
                    "selection": where,
                    "facet": facet if metric else None,
                    "facet_value": column if metric else None,
                }
                rows.append(about | number_columns(section, entry, metric or column, scores[entry.key], cell))
    return rows


def number_columns(
    section: Section, entry: Entry, metric: str, score: Score, cell: tuple[str, str] | None = None
) -> dict[str, Any]:
    """A number as columns of a table: of which questions, of which result, and its source. `cell`: (facet, value) that it is of."""
    result = entry.result
    return {
        "benchmark": section.benchmark,
        "split": section.split,
        "set": section.kind,
        "model": result.model.name,
        "model_kind": result.model.kind,
        "method": result.method.name,
        "metric": metric,
        **score_columns(score, result),
        "kind": result.kind,
        "provenance": result.provenance,
        "source": result.source.citation if result.source else None,
        "table": printed_table(result, metric, *(cell or ("", ""))) if result.kind == "published" else None,
        "run": entry.key,
    }


def score_columns(score: Score, result: Result) -> dict[str, Any]:
    """A score as columns of a table; `no_score`: why it has no verdict and no rank."""
    names = ("value", "low", "high", "n", "n_cases", "n_effective", "chance", "verdict")
    low, high = score.chance_interval or (None, None)
    return {
        **{name: getattr(score, name) for name in names},
        "chance_low": low,
        "chance_high": high,
        "no_score": sentences.no_score(score, result) or None,
    }


def table_file(table: Table, name: str, form: str) -> dict[str, str]:
    """A table as what the browser saves: `name`, `text`, `type`. `form`: csv or json. Raises BadInput for a table without rows."""
    if not table:
        raise BadInput("this table is empty, so there is nothing to save. Choose another selection or another score.")
    form = "json" if form == "json" else "csv"
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:100]
    return {
        "name": f"medprobe-{safe}.{form}",
        "text": format_json(table) if form == "json" else format_csv(table),
        "type": "application/json" if form == "json" else "text/csv",
    }


def leaderboard_table(section: Section, found: Standings, branches: Sequence[TreePath]) -> Table:
    """The standings as plain rows, everything that a number rests on beside it."""
    where = format_selection(branches)
    seen = {} if branches else metric_sights(section, found.metric)
    rows = []
    for row in found.rows:
        sight, method = seen.get(row.entry.key), row.entry.result.method
        rows.append(
            {
                **number_columns(section, row.entry, found.metric, row.score),
                "fingerprint": section.fingerprint,
                "selection": where,
                "prompt": method.prompt,
                "extraction": method.extraction,
                "judge": judge_label(row.entry.result),
                "place_first": row.first,
                "place_last": row.last,
                "from_image": sight and sight.value,
                "from_image_low": sight and sight.low,
                "from_image_high": sight and sight.high,
                **_store_columns(row),
                "table": _printed_table(row, found.metric, branches),
                "interval_method": row.score.interval_method,
            }
        )
    return rows


def _store_columns(row: Row) -> dict[str, Any]:
    """Where a result stands, whose it is, and what the store says of it."""
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
        "notes": "; ".join(f"{note.account}: {note.text}" for note in provenance.notes) or None,
    }


def format_csv(table: Table) -> str:
    """Comma-separated, one header line. A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if not table:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(
        out, fieldnames=list(dict.fromkeys(name for row in table for name in row)), lineterminator="\r\n"
    )
    writer.writeheader()
    writer.writerows([{name: escape_formula(value) for name, value in row.items()} for row in table])
    return out.getvalue()


def format_json(table: Table) -> str:
    """A list of objects; nothing is rounded."""
    plain = [{name: _json_value(value) for name, value in row.items()} for row in table]
    return json.dumps(plain, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _json_value(value: Any) -> Any:
    """NaN and infinities are no JSON."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _printed_table(row: Row, metric: str, branches: Sequence[TreePath]) -> str | None:
    """The table a published number is printed in: its own where the board knows it, else those its result names."""
    result = row.entry.result
    if result.kind != "published" or result.source is None:
        return None
    cell = own_cell(row.entry, branches) or ("", "")
    return printed_table(result, metric, *cell) or result.source.table


def table_citation(
    section: Section, found: Standings, branches: Sequence[TreePath], request: Mapping[str, Any]
) -> dict[str, str]:
    """How to cite a table (`citation_file`): the selection and the questions, then the papers of its numbers."""
    title = f"{section.benchmark} ({section.split}), {section.title().lower()}: {found.metric}"
    note = f"Selection: {format_selection(branches) or 'everything'}."
    if section.fingerprint:
        note += f" Questions: fingerprint {section.fingerprint}."
    return citation_file(title, note, [row.entry for row in found.rows], request)


def citation_file(title: str, note: str, entries: Sequence[Entry], request: Mapping[str, Any]) -> dict[str, str]:
    """How to cite a page as what the browser shows (`name`, `text`, `type`): BibTeX with what is selected (`note`), the day and the
    address (`link` of the request), then the papers of its numbers."""
    day, link = datetime.now(UTC).date().isoformat(), str(request.get("link") or "")[:4000]
    cited_papers = {
        entry.result.source.citation: entry.result.benchmark.family for entry in entries if entry.result.source
    }
    papers = [bibtex_entry(family, citation) for citation, family in sorted(cited_papers.items())]
    address = f"  url = {{{_escape_bibtex(link)}}},\n" if link else ""
    lines = [
        f"@misc{{medprobe_{re.sub(r'[^a-z0-9]+', '_', title.lower())[:40].strip('_')}_{day.replace('-', '')},\n"
        f"  title = {{{{medprobe board}}: {_escape_bibtex(title)}}},\n  note = {{{_escape_bibtex(note)}}},\n{address}"
        f"  year = {{{day[:4]}}},\n  urldate = {{{day}}}\n}}"
    ]
    said = "\n\n".join([*lines, *dict.fromkeys(papers)])
    return {"name": "", "text": said, "type": "text/plain"}


def plot_note(section: Section, found: Standings, branches: Sequence[TreePath]) -> str:
    """What a saved plot says of itself: the set of questions, the selection, and the papers of its numbers."""
    papers = sorted({row.entry.result.source.citation for row in found.rows if row.entry.result.source})
    where = f" Selection: {format_selection(branches)}." if branches else ""
    numbers = f" Numbers of: {' '.join(papers)}" if papers else ""
    return f"{section.benchmark} ({section.split}), {section.title().lower()}.{where}{numbers}"


def bibtex_entry(family: str, citation: str) -> str:
    """The BibTeX entry of a benchmark's paper, with its authors; else its citation as a note."""
    if family in BENCHMARKS:
        return dataset_spec(family).card.citation
    return f"@misc{{source,\n  note = {{{_escape_bibtex(citation)}}}\n}}"


def _escape_bibtex(said: str) -> str:
    """Text that ends no BibTeX field early."""
    return re.sub(r"[{}\\]", "", said)
