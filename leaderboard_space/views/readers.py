"""Draw how people and models compare on the questions that both answered, below a leaderboard."""

from __future__ import annotations

from contextlib import suppress

from dataset_builders.errors import BadInput
from eval_harness.derive.run_files import read_readings
from eval_harness.store.comparison import Side
from eval_harness.store.reader_study import ModelContrast, ReaderGroup, study_readers
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import READING, cached
from leaderboard_space.data.ranks.groups import RANKED_GROUPS, preference_key, ranking_group, row_owner
from leaderboard_space.data.store.sections import Section, Snapshot
from leaderboard_space.html import number, score_text, text
from leaderboard_space.sentences import format_difference_interval
from leaderboard_space.views.tables.table import column, name_column, scrollable, table

READERS_NOTE = "People answer under a pseudonym: no one can verify who, and with what help. They are not ranked."


@cached(READING)
def reader_groups(board: Board, snapshot: Snapshot, section: Section) -> list[ReaderGroup]:
    """Compare people with models, on the questions of a section or a part of the same benchmark.

    Args:
        board: The board.
        snapshot: Its current snapshot.
        section: The section, which is one of the snapshot's.

    Returns:
        The groups of readers; empty without any.
    """
    sections = [part for part in snapshot.sections[section.family] if _source(part) == _source(section)]
    if not any(entry.result.model.kind == "human" for part in sections for entry in part.entries):
        return []
    sides: dict[tuple[object, ...], Side] = {}
    for part in sections:
        for entry in sorted(part.entries, key=preference_key):
            # A person may have read several parts; of a model, one result is enough.
            identity = (row_owner(entry), part.key if entry.result.model.kind == "human" else "")
            if entry.derived is None or ranking_group(entry) not in RANKED_GROUPS or identity in sides:
                continue
            with suppress(BadInput, OSError, ValueError):
                questions = board.questions(part.fingerprint or "")
                sides[identity] = Side(entry.key, entry.result, read_readings(entry.derived), questions)
    return study_readers(list(sides.values()))


def _source(section: Section) -> tuple[str, str, bool]:
    """What the questions of readers and models have in common; drawn images never mix with real."""
    return section.benchmark, section.split, section.kind == "phantom"


def readers_part(groups: list[ReaderGroup]) -> str:
    """Draw the readers, what they have in common, and a row for each reader and model, as HTML."""
    if not groups:
        return ""
    case = board_spec(groups[0].family).case
    lines = [READERS_NOTE, *(" ".join(group.sentences(case, with_models=False)) for group in groups)]
    columns = [
        name_column("Reader", lambda row: text(row.reader, 100)),
        column("Model", lambda row: text(row.model, 100)),
        column(f"{case.capitalize()}s", lambda row: str(row.n), kind="num"),
        column("Reader (%)", lambda row: score_text(row.reader_value, "percent"), kind="num"),
        column("Model (%)", lambda row: score_text(row.model_value, "percent"), kind="num"),
        column("Model minus reader (points, 95% interval)", _difference, kind="num"),
    ]
    contrasts: list[ModelContrast] = [contrast for group in groups for contrast in group.contrasts]
    title = "Readers and models on the same questions"
    rows = scrollable(table("readers", title, columns, [("", contrasts)], "plain")) if contrasts else ""
    paragraphs = "".join(f'<p class="sub">{text(line, 2000)}</p>' for line in lines)
    return f'<div class="bar-head"><h3>{title}</h3></div>{paragraphs}{rows}'


def _difference(contrast: ModelContrast) -> str:
    return f"<b>{number(-contrast.lower)}</b> ({format_difference_interval(-contrast.high, -contrast.low)})"
