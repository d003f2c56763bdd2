"""Facets as roots of their own: any of the chosen labels of a facet, and all of the facets that something is chosen of.

A selection is a list of paths: branches of the tree (facet, label, label, ...), which are joined as the GMAI-MMBench paper joins them, and
choices (`=facet`, label), which narrow. See also: the tree (`tree.py`), the same on the command line (`dataset_builders.facets`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dataset_builders.benchmark_names import folded
from dataset_builders.errors import BadInput
from dataset_builders.facets import read_facets

if TYPE_CHECKING:
    import pandas as pd

Path = tuple[str, ...]
MARK = "="


def choice(facet: str, label: str) -> Path:
    """The path of a chosen label."""
    return (MARK + facet, label)


def facet_of(path: Path) -> str | None:
    """The facet of a choice; None for a branch of the tree."""
    return path[0][1:] if path[0].startswith(MARK) else None


def groups_of(selection: Sequence[Path]) -> list[list[Path]]:
    """The paths that are joined with each other: the branches, then the choices of each facet. What is selected is in all of them.

    >>> groups_of([("task", "A"), choice("modality", "CT"), ("task", "B")])
    [[('task', 'A'), ('task', 'B')], [('=modality', 'CT')]]
    """
    found: dict[str | None, list[Path]] = {}
    for path in sorted(selection, key=lambda path: facet_of(path) is not None):
        found.setdefault(facet_of(path), []).append(path)
    return list(found.values())


def organ_and_modality(image_type: str) -> tuple[str, str]:
    """The two halves of a ProbMed image type; the source joins them by an underscore.

    >>> organ_and_modality("chest_xray")
    ('chest', 'xray')
    """
    organ, _, modality = image_type.partition("_" if "_" in image_type else " ")
    return organ, modality


def cells_under(path: Path, breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells (facet, facet value) of a result's breakdown that a path consists of; empty where the breakdown does not say.

    An organ or a modality of ProbMed is its image types, an organ's modality is one image type.
    """
    facet, labels = facet_of(path) or path[0], path[1:]
    if len(labels) == 1 and labels[0] in breakdown.get(facet, {}):
        return [(facet, labels[0])]
    at = {"organ": 0, "modality": 1}.get(facet)
    if at is None:
        return []
    return [
        ("image_type", name)
        for name in breakdown.get("image_type", {})
        if organ_and_modality(name)[at : at + len(labels)] == labels
    ]


def cells_in(selection: Sequence[Path], breakdown: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The cells of a result's breakdown that lie wholly within a selection: those of every group. Papers print by one facet at a time, so
    that of two facets together they say nothing, but for ProbMed's image types, which are organ and modality at once."""
    of_groups = [[cell for path in group for cell in cells_under(path, breakdown)] for group in groups_of(selection)]
    first, *others = of_groups or [[]]
    return [cell for cell in dict.fromkeys(first) if all(cell in other for other in others)]


def of_facets(table: pd.DataFrame, said: Sequence[str]) -> pd.DataFrame:
    """The rows of a table of results (columns `facet`, `facet_value`) that are numbers of the named labels, `FACET=VALUE` each.

    Raises BadInput for a facet or a label that no row has, and where no row has them all: papers print by one facet at a time.
    """
    if not said:
        return table
    pairs = table[["facet", "facet_value"]].dropna().drop_duplicates().itertuples(index=False, name=None)
    labels: dict[str, dict[str, None]] = {}
    breakdown: dict[str, dict[str, None]] = {}
    for facet, value in pairs:
        breakdown.setdefault(facet, {})[value] = None
        labels.setdefault(facet, {})[value] = None
        if facet == "image_type":
            for half, label in zip(("organ", "modality"), organ_and_modality(value), strict=True):
                labels.setdefault(half, {})[label] = None
    named = read_facets(said, labels)  # benchmarks spell a label in their own ways: CT, ct
    choices = [choice(facet, each) for facet, label in named for each in labels[facet] if folded(each) == folded(label)]
    wanted = {
        (facet, value)
        for facet, held in breakdown.items()
        for value in held
        if cells_in(choices, {facet: {value: None}})
    }
    if not wanted:
        raise BadInput(
            f"--facet {' --facet '.join(said)}: no number for all of them together; results are broken down by one facet at a time."
        )
    return table[[pair in wanted for pair in zip(table["facet"], table["facet_value"], strict=True)]]
