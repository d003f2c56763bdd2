"""Tables as files: CSV that no spreadsheet executes, JSON, and the words to cite them with. Not here: computing the tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from leaderboard_space.sections import Section
from leaderboard_space.standings import Standings, with_interval
from leaderboard_space.tree import SEPARATOR, Path

Table = list[dict[str, Any]]


def leaderboard_table(section: Section, found: Standings, branches: Sequence[Path]) -> Table:
    """The standings as plain rows, everything that a number rests on beside it."""
    where = "; ".join(SEPARATOR.join(branch[1:]) for branch in branches)
    rows = []
    for row in found.rows:
        result, score = row.entry.result, with_interval(row.score)
        rows.append(
            {
                "benchmark": section.benchmark,
                "split": section.split,
                "set": section.kind,
                "fingerprint": section.fingerprint,
                "selection": where,
                "model": result.model.name,
                "model_kind": result.model.kind,
                "method": result.method.name,
                "prompt": result.method.prompt,
                "extraction": result.method.extraction,
                "metric": found.metric,
                "value": score.value,
                "low": score.low,
                "high": score.high,
                "n": score.n,
                "n_cases": score.n_cases,
                "chance": score.chance,
                "verdict": score.verdict,
                "place_first": row.first,
                "place_last": row.last,
                "kind": result.kind,
                "provenance": result.provenance,
                "source": result.source.citation if result.source else None,
                "table": result.source.table if result.source else None,
                "interval_method": score.interval_method,
                "run": row.entry.key,
            }
        )
    return rows


def as_csv(table: Table) -> str:
    """Comma-separated, one header line. A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if not table:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(table[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows([{name: _harmless(value) for name, value in row.items()} for row in table])
    return out.getvalue()


def as_json(table: Table) -> str:
    """A list of objects; nothing is rounded."""
    return json.dumps(table, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _harmless(value: Any) -> Any:
    """A spreadsheet takes cells that begin with these characters for formulas (CSV injection)."""
    if isinstance(value, str) and value.lstrip(" \t\r\n")[:1] in ("=", "+", "-", "@", "|", "%"):
        return "'" + value
    return value


def file_name(section: Section, metric: str, form: str) -> str:
    """A name for a download: ASCII letters, digits, dots and dashes."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{section.benchmark}-{section.key}-{metric}")
    return f"medprobe-{name.strip('-.')[:100]}.{form}"


def citation(section: Section, found: Standings) -> str:
    """What to name when using these numbers: the papers they were printed in, and the set of questions."""
    papers = sorted({row.entry.result.source.citation for row in found.rows if row.entry.result.source})
    lines = [
        f"medprobe board, {section.benchmark} ({section.split}), {section.title().lower()}, metric {found.metric}."
    ]
    if section.fingerprint:
        lines.append(f"Questions: fingerprint {section.fingerprint}.")
    return "\n".join([*lines, *papers])
