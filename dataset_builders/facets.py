"""Select questions by facets such as `modality=CT`, and by branches of the lexical tree.

Values of one facet are alternatives (or); different facets narrow the selection (and).

A subject is one of task, department and granularity. A branch is a path: its subject, then labels
from the trunk outwards, such as ("department", "Ophthalmology", "Fundus Photography"). Branches of
one subject are united; those of different subjects are intersected. This extends appendix C.2 of
GMAI-MMBench ("we can intersect the keywords"): the paper then looks questions up by keyword,
whereas this module selects the questions themselves.

Questions, results and the board's trees (`leaderboard_space/data/tree.py`) all use these rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dataset_builders.benchmark_names import fold_name, resolve_name
from dataset_builders.benchmarks import FACETS_BY_BENCHMARK, free_facets
from dataset_builders.errors import BadInput

FACET_CHAINS = tuple((subject, "modality", "keyword") for subject in ("task", "department", "granularity"))
"""The facets along each subject's branches, from the trunk outwards.

A branch that names no subject belongs to the first one that contains it.
"""
STEP_SEPARATOR = ">"
UNLABELLED = "unlabelled"
"""Label of a question that its source does not label."""

TreePath = tuple[str, ...]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def parse_facets(expressions: Sequence[str], labels: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Parse `FACET=VALUE` expressions, ignoring case.

    Args:
        expressions: what the user typed.
        labels: facet -> its labels.

    Returns:
        (facet, label) of each expression, spelled as in `labels`.

    Raises:
        BadInput: the facet or label is unknown; lists near misses or the available names.
    """
    pairs = []
    for expression in expressions:
        name, equals, value = (part.strip() for part in expression.partition("="))
        if not equals or not name or not value:
            raise BadInput(f"--facet {expression[:80]!r}: write FACET=VALUE, e.g. --facet modality=CT.")
        facet = resolve_name(name, labels, "--facet: the facet")
        pairs.append((facet, resolve_name(value, sorted(labels[facet]), f"--facet {facet}: the label")))

    return pairs


def parse_question_facets(questions: pd.DataFrame, facets: Sequence[str]) -> list[tuple[str, str]]:
    """Parse `FACET=VALUE` expressions against the labels that the questions have.

    Args:
        questions: a frame of questions.
        facets: what the user typed.

    Returns:
        (facet, label) pairs, spelled as in the questions.

    Raises:
        BadInput: as `parse_facets`.
    """
    return parse_facets(facets, _labelled_positions(questions))


def select_by_facets(questions: pd.DataFrame, facets: Sequence[str]) -> BoolArray:
    """Select the questions that have a chosen label in every chosen facet.

    A question with several categories matches any of them; an unlabelled question matches none.

    Args:
        questions: a frame of questions.
        facets: `FACET=VALUE` expressions; without any, all questions are selected.

    Returns:
        Boolean mask of shape (n_questions,).

    Raises:
        BadInput: a facet or label is unknown, or no question satisfies all facets.
    """
    if not facets:
        return np.ones(len(questions), dtype=bool)

    # Questions may spell one label in several ways: all spellings of a chosen one are selected.
    positions_by_facet = _labelled_positions(questions)
    chosen = {(facet, fold_name(label)) for facet, label in parse_facets(facets, positions_by_facet)}
    rows: dict[TreePath, IntArray] = {
        (facet, label): positions
        for facet, positions_by_label in positions_by_facet.items()
        for label, positions in positions_by_label.items()
        if (facet, fold_name(label)) in chosen
    }
    mask = selection_mask(rows, rows, len(questions))
    if not mask.any():
        raise BadInput(
            f"--facet {' --facet '.join(facets)}: no question has them all, though each is known. Leave one of them out."
        )
    return mask


def _labelled_positions(questions: pd.DataFrame) -> dict[str, dict[str, IntArray]]:
    """Return facet -> label -> positions of its questions, for the facets that have labels."""
    declared = dict.fromkeys([*(facet for facets in FACETS_BY_BENCHMARK.values() for facet in facets), "keyword"])
    by_facet: dict[str, dict[str, IntArray]] = {}
    for facet in (*declared, *free_facets(questions.columns)):
        by_label = {label: positions for (label,), positions in positions_by_labels(questions, [facet]).items()}
        by_label.pop(UNLABELLED, None)
        if by_label:
            by_facet[facet] = by_label
    return by_facet


def select_by_branches(questions: pd.DataFrame, branches: Sequence[str], facets: Iterable[str] = ()) -> BoolArray:
    """Select the questions on some branches of the lexical tree.

    Args:
        questions: a frame of questions.
        branches: steps from the trunk outwards, separated by ">": "Ophthalmology > Fundus
            Photography", "Fundus Photography", "Disease Diagnosis > CT > lung nodule". Without any,
            all questions are selected. See `resolve_branch` for their meaning and `selection_mask`
            for how they combine.
        facets: facets that are also filtered by label (`check_facet_conflicts`).

    Returns:
        Boolean mask of shape (n_questions,).

    Raises:
        BadInput: no question has a step (lists near misses), or no question is on all branches.
    """
    if not branches:
        return np.ones(len(questions), dtype=bool)
    rows = {path: at for chain in FACET_CHAINS for path, at in branch_positions(questions, chain).items()}
    if not rows:
        raise BadInput(
            "--branch: no question here has a task, department or granularity. --facet selects by other labels."
        )

    paths = [path for branch in branches for path in resolve_branch(rows, FACET_CHAINS, branch, "--branch")]
    check_facet_conflicts(paths, facets)
    mask = selection_mask(rows, paths, len(questions))
    if not mask.any():
        raise BadInput(
            f"--branch {' --branch '.join(branches)}: no question lies on all of them (branches of different subjects narrow each "
            "other). Leave one of them out."
        )

    return mask


def resolve_branch(
    paths: Iterable[TreePath],
    chains: Sequence[Sequence[str]],
    branch: str,
    option: str = "branch",
    display: Callable[[str, str], str] = lambda facet, label: label,
) -> list[TreePath]:
    """Find the paths that a branch refers to.

    These are the paths that end in its last step and contain its other steps in order.

    Args:
        paths: the paths of a tree.
        chains: per subject of the tree, its facets from the trunk outwards.
        branch: steps separated by ">", in any case. A step is a label, or `facet: label` if the
            label occurs in several facets.
        option: what messages call the branch.
        display: how a facet's label is displayed; this spelling is accepted as well.

    Returns:
        Paths of one subject. An ambiguous name means the label nearest to the trunk, then the
            earlier subject.

    Raises:
        BadInput: no path has these steps; lists near misses for an unknown one.
    """
    levels = {chain[0]: chain for chain in chains}
    on_chains = [path for path in paths if path[0] in levels]
    labels: dict[str, set[str]] = {}
    for path in on_chains:
        labels.setdefault(levels[path[0]][len(path) - 2], set()).add(path[-1])

    steps = [
        _match_step(step.strip(), labels, f"{option} {branch[:80]!r}", display) for step in branch.split(STEP_SEPARATOR)
    ]
    matches: dict[tuple[int, ...], list[TreePath]] = {}
    for path in on_chains:
        if depths := _step_depths(list(zip(levels[path[0]], path[1:], strict=False)), steps):
            matches.setdefault((*depths, list(levels).index(path[0])), []).append(path)

    if not matches:
        raise BadInput(
            f"{option} {branch[:80]!r}: no question is on this branch, although each step exists. Shorten it; give steps of "
            "different subjects as separate branches."
        )

    # Keys order matches by the depths of the steps, then by subject: the smallest is nearest the
    # trunk.
    return matches[min(matches)]


FacetLabel = tuple[str, str]
"""(facet, label)"""


def _match_step(
    step: str, labels: Mapping[str, set[str]], option: str, display: Callable[[str, str], str]
) -> set[FacetLabel]:
    """Return the labels that a step may mean; `labels`: facet -> labels. Raises BadInput if there
    are none.
    """
    if not step:
        raise BadInput(f'{option}: a step is empty. Write it like "Ophthalmology > Fundus Photography".')
    facet_name, _, label_text = (part.strip() for part in step.partition(":"))
    if label_text and facet_name.lower() in labels:
        labels, step = {facet_name.lower(): labels[facet_name.lower()]}, label_text
    spellings = {
        (facet, label): (label, display(facet, label))
        for facet, facet_labels in labels.items()
        for label in sorted(facet_labels)
    }
    matches = {facet_label for facet_label, written in spellings.items() if fold_name(step) in map(fold_name, written)}
    if not matches:
        # No exact match: this call raises the error with near misses.
        resolve_name(step, [label for _, label in spellings], f"{option}: the {' or '.join(labels)}")
    return matches


def _step_depths(labels: Sequence[FacetLabel], steps: Sequence[set[FacetLabel]]) -> tuple[int, ...]:
    """Return each step's position on a path, the last at its end; empty if a step is missing."""
    remaining = enumerate(labels[:-1])  # consumed as the loop advances, so steps must occur in order
    depths = [next((at for at, label in remaining if label in step), -1) for step in steps[:-1]]
    return () if -1 in depths or labels[-1] not in steps[-1] else (*depths, len(labels) - 1)


def check_facet_conflicts(paths: Iterable[TreePath], facets: Iterable[str]) -> None:
    """Check that no facet is chosen both by branches and by labels: union or intersection would be
    unclear.

    Args:
        paths: the chosen branches.
        facets: facets filtered by label.

    Raises:
        BadInput: a facet is chosen in both ways.
    """
    if conflicts := {path[0] for path in paths} & set(facets):
        subject = min(conflicts)
        raise BadInput(
            f"{subject} is chosen by a branch and by a facet. Give its labels as branches: branches of one subject are united."
        )


def group_by_subject(selection: Iterable[TreePath]) -> list[list[TreePath]]:
    """Group paths by subject or facet.

    A selection is the union of the paths in a group and the intersection of the groups.

    Args:
        selection: paths in any order.

    >>> group_by_subject([("task", "A"), ("modality", "CT"), ("task", "B", "MRI")])
    [[('task', 'A'), ('task', 'B', 'MRI')], [('modality', 'CT')]]
    """
    groups: dict[str, list[TreePath]] = {}
    for path in selection:
        groups.setdefault(path[0], []).append(path)

    return list(groups.values())


def selection_mask(rows: Mapping[TreePath, IntArray], selection: Iterable[TreePath], size: int) -> BoolArray:
    """Compute the mask of a selection.

    Args:
        rows: path -> positions of its questions.
        selection: the chosen paths.
        size: number of questions.

    Returns:
        Boolean mask of shape (size,).
    """
    mask = np.ones(size, dtype=bool)
    for group in group_by_subject(selection):
        united = np.zeros(size, dtype=bool)
        for path in group:
            united[rows.get(path, [])] = True
        mask &= united

    return mask


def branch_positions(questions: pd.DataFrame, chain: Sequence[str]) -> dict[TreePath, IntArray]:
    """Compute the questions on every branch of a chain of facets.

    A branch precedes its sub-branches, the largest first. A level without any label is omitted with
    everything below it.

    Args:
        questions: a frame of questions.
        chain: facets from the trunk outwards.

    Returns:
        Path -> positions of its questions.
    """
    children: dict[TreePath, dict[str, IntArray]] = {}
    for depth in range(1, len(chain) + 1):
        for labels, at in positions_by_labels(questions, chain[:depth]).items():
            # Index branches by their parent, so that the walk below visits them depth first.
            children.setdefault((chain[0], *labels[:-1]), {})[labels[-1]] = at

    def walk(path: TreePath) -> Iterator[tuple[TreePath, IntArray]]:
        branches = children.get(path, {})

        # A level on which no question is labelled would add a branch without information.
        if not set(branches) - {UNLABELLED}:
            return
        for label in sorted(branches, key=lambda label: largest_first_key(label, branches[label].size)):
            yield (*path, label), branches[label]
            yield from walk((*path, label))

    return dict(walk((chain[0],)))


def largest_first_key(label: str, n: int) -> tuple[bool, int, str]:
    """Sort key of labels: largest first, then by name; unlabelled last.

    Args:
        label: the label.
        n: number of its questions.
    """
    return (label == UNLABELLED, -n, label.lower())


def positions_by_labels(questions: pd.DataFrame, facets: Sequence[str]) -> dict[TreePath, IntArray]:
    """Group questions by their labels in some facets.

    A question with several categories is in each of their groups; one without a label counts as
    "unlabelled".

    Args:
        questions: a frame of questions.
        facets: facets to group by.

    Returns:
        Labels -> positions of the questions; empty if the source lacks one of the facets.
    """
    columns = ["categories" if facet == "category" else facet for facet in facets]
    if not set(columns) <= set(questions.columns):
        return {}
    labels = questions[columns].reset_index(drop=True).astype(object)
    if "categories" in columns:
        labels["categories"] = labels["categories"].map(
            lambda cell: list(dict.fromkeys(cell if cell is not None else ()))
        )

        # One row per category; the index still refers to the original question.
        labels = labels.explode("categories")

    labels = labels.replace("", None).where(lambda table: table.notna(), UNLABELLED).astype(str)
    positions = labels.index.to_numpy(np.int64)
    groups = labels.groupby(columns, sort=False).indices
    return {key if isinstance(key, tuple) else (key,): positions[at] for key, at in groups.items()}
