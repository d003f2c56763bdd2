"""List differing settings of compared results: a comparison is only about the models where none differs."""

from __future__ import annotations

from collections.abc import Mapping

from leaderboard_space.comparing import SLOTS, Comparison
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.export import Table
from leaderboard_space.html import text
from leaderboard_space.views.parts import framed


def said(value: object) -> str:
    """A setting in words: nothing as a dash, a table of settings as `name value` pairs.

    >>> said({"temperature": 0.0, "stop": ["a", "b"]}), said(None), said(True)
    ('temperature 0.0, stop a, b', '–', 'yes')
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {said(one)}" for name, one in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(said(one) for one in value) or "–"
    return str(value)


def _settings_of(entry: Entry) -> dict[str, object]:
    """How a result was got."""
    method = entry.result.method
    found: dict[str, object] = {
        "method" if name == "name" else name: getattr(method, name)
        for name in ("name", "prompt", "shots", "samples", "extraction", "judge")
    }
    return {**found, **(method.generation or {}), "deviations": "; ".join(entry.result.deviations) or None}


def _different(found: Comparison) -> list[tuple[str, list[object]]]:
    """What differs in how the results were got: name, one value for each."""
    held = [_settings_of(entry) for entry in found.chosen]
    names = dict.fromkeys(name for settings in held for name in settings)
    rows = [(name, [settings.get(name) for settings in held]) for name in names if not name.endswith("_hash")]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]


def rows(found: Comparison) -> Table:
    return [
        {"setting": name, **{SLOTS[at]: None if value is None else said(value) for at, value in enumerate(values)},
         **{f"{SLOTS[at]}_result": found.name(entry) for at, entry in enumerate(found.chosen)}}
        for name, values in _different(found)
    ]  # fmt: skip


def view(found: Comparison) -> str:
    """What differs in how they were run; a comparison is only about the models where nothing does."""
    different = _different(found)
    both = "Both" if len(found.chosen) == 2 else "All"
    if not different:
        known = all(entry.result.kind == "measured" for entry in found.chosen)  # papers print few settings
        return f'<p class="sub">{both} were run with the same settings.</p>' if known else ""
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th>{"".join(f"<td>{text(said(value), 300)}</td>" for value in values)}</tr>'
        for name, values in different
    )
    heads = [("setting", "Setting"), *((SLOTS[at], found.name(entry)) for at, entry in enumerate(found.chosen))]
    return framed("Settings that differ", "settings", heads, rows, left=True)
