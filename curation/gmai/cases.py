"""From items to cases: a case is one image with one target, or all labels of the image, at one granularity, and its tags."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from curation.gmai.items import Item
from curation.gmai.labels import LabelTable, Tags, regions_named
from curation.gmai.sources import IMAGE, OF_KIND, Sources
from curation.readers.dataset import SourceDataset
from dataset_builders.errors import BadInput
from dataset_builders.terms import Place, place_of

Cell = tuple[str, str, str]
"""(modality, task, granularity): what shares questions and, at region level, options."""


Known = tuple[set[str], set[str]]
"""(labels that are on a picture, labels that may be) by all sources that hold its pixels: they may be labelled twice."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible question, before its words and options."""

    case: str
    answers: tuple[str, ...]
    """canonical labels; several for multiple choice"""
    item: Item
    task: str
    department: str
    granularity: str
    modality: str
    present: frozenset[str]
    """canonical labels on the picture"""
    regions: frozenset[str]
    """of the body; empty where unknown"""
    order: str
    """a hash of its content and the seed: decides draws, on any machine"""
    unsure: frozenset[str] = frozenset()
    """canonical labels that may or may not be on the picture"""
    overlapping: frozenset[str] = frozenset()
    """canonical labels on the picture whose region shares pixels with the target, or is not known"""

    @property
    def cell(self) -> Cell:
        return self.modality, self.task, self.granularity

    @property
    def is_multiple(self) -> bool:
        return len(self.answers) > 1

    @property
    def answer(self) -> str:
        """The key under which cases are counted: the label, or the labels."""
        return "; ".join(self.answers)


def make_cases(
    items: list[Item], sources: Sources, table: LabelTable, tags: Tags
) -> tuple[list[Candidate], Counter[str], dict[tuple[str, str], int]]:
    """(cases, left out by reason, unmapped (why, raw label) -> items).

    Raises BadInput where no label is mapped, or a tag is none of the tree's values.
    """
    datasets = {dataset.name: dataset for dataset in sources.datasets}
    unmapped: dict[tuple[str, str], int] = Counter()
    mapped: list[tuple[Item, str]] = []
    for item in items:
        place = _place(item, datasets[item.dataset])
        name = table.name_of(item.label, place)
        if name is None:
            unmapped[table.why_not(item.label, place), item.label] += 1
        else:
            mapped.append((item, name))
    if not mapped:
        some = ", ".join(f"{label!r} {why}" for why, label in list(unmapped)[:5])
        raise BadInput(
            f"no label is mapped: {some}, and {max(0, len(unmapped) - 5)} more. "
            "Give them a row in labels.csv (name, raw, task, department, region) and name it in sources.yaml."
        )
    left_out: Counter[str] = Counter({"label that no table maps": sum(unmapped.values())} if unmapped else {})
    cases: list[Candidate] = []
    wrong: set[str] = set()
    whole: dict[tuple[str, str, str], list[tuple[Item, str, str, str]]] = defaultdict(list)
    known: dict[str, Known] = defaultdict(lambda: (set(), set()))
    for item, name in mapped:
        known[item.picture][0].update({name}, _names(item.present, item, datasets[item.dataset], table))
        known[item.picture][1].update(_names(item.unsure, item, datasets[item.dataset], table))
    for item, name in mapped:
        dataset = datasets[item.dataset]
        task, department = (_tag(subject, item, name, dataset, table, tags) for subject in ("task", "department"))
        wrong |= {f"task {task!r} of {name!r}"} if task and task not in sources.tasks else set()
        wrong |= (
            {f"department {department!r} of {name!r}"}
            if department and department not in sources.departments
            else set()
        )
        if not task or not department:
            left_out[f"label without a {'department' if task else 'task'}"] += 1
            continue
        if item.kind == "class" and "granularity" not in item.tags:
            whole[item.dataset, item.picture, item.patient].append((item, name, task, department))
            continue
        granularities = (item.tags["granularity"],) if "granularity" in item.tags else OF_KIND[item.kind]
        cases += [
            _case(item, (name,), task, department, each, dataset, table, sources, known[item.picture])
            for each in granularities
        ]
    if wrong:
        raise BadInput(
            f"{'; '.join(sorted(wrong)[:5])}: not in the tree. Use the tree's values, or give `tasks` and `departments`."
        )
    several = {name for (name, _, _), found in whole.items() if len(found[0][0].present) > 1}
    for (name, picture, _), found in whole.items():
        cases += _whole_image(found, datasets[name], name in several, table, sources, left_out, known[picture])
    return cases, left_out, unmapped


def _tag(subject: str, item: Item, name: str, dataset: SourceDataset, table: LabelTable, tags: Tags) -> str:
    """By the source itself, the dataset, the taggers, or the label table, whichever speaks first."""
    return (
        item.tags.get(subject)
        or getattr(dataset, subject)
        or tags.values.get(name, {}).get(subject)
        or str(getattr(table.labels[name], subject))
    )


def _whole_image(
    found: list[tuple[Item, str, str, str]], dataset: SourceDataset, has_several: bool, table: LabelTable, sources: Sources,
    left_out: Counter[str], known: Known,
) -> list[Candidate]:  # fmt: skip
    """The cases of a picture's classes. Several labels are asked about only where the set is labelled exhaustively, and then all at once
    per task; a label above another one of the picture says nothing more and is left out."""
    present = found[0][0].present
    place = _place(found[0][0], dataset)
    if any(item.present != present for item, _, _, _ in found):
        left_out["whole image: two files with the same pixels are labelled differently"] += len(found)
        return []
    if any(table.name_of(raw, place) is None for raw in present):
        left_out["whole image: one of its labels is not mapped"] += len(found)
        return []
    if has_several and not dataset.exhaustive and dataset.reader != "wide":
        left_out["whole image: a set with several labels an image that is not labelled exhaustively"] += len(found)
        return []
    names = {name for _, name, _, _ in found}
    above = {ancestor for name in names for ancestor in table.ancestors(name)}
    unique = {name: each for each in found if (name := each[1]) not in above}
    by_task: dict[str, list[tuple[Item, str, str, str]]] = defaultdict(list)
    for each in unique.values():
        by_task[each[2]].append(each)
    return [
        _case(own[0][0], tuple(sorted(each[1] for each in own)), task, own[0][3], IMAGE, dataset, table, sources, known)
        for task, own in by_task.items()
    ]


def _case(
    item: Item, names: tuple[str, ...], task: str, department: str, granularity: str, dataset: SourceDataset, table: LabelTable,
    sources: Sources, known: Known,
) -> Candidate:  # fmt: skip
    """Where a label that only another source knows of lies is not known: it may lie where the target does."""
    own = _names(item.present, item, dataset, table) | set(names)
    elsewhere = frozenset(known[0]) - own
    present = own | elsewhere if granularity == IMAGE else own
    content = [sources.seed, item.dataset, item.picture, names, granularity, item.box, item.mask, *item.more]
    return Candidate(
        case=f"{item.item}-{granularity.split(maxsplit=1)[0].lower()}" + ("-multiple" if len(names) > 1 else ""),
        answers=names,
        item=item,
        task=task,
        department=department,
        granularity=granularity,
        modality=item.modality,
        present=present,
        unsure=frozenset(known[1]),
        overlapping=_names(item.overlapping, item, dataset, table) | elsewhere,
        regions=_regions(present, dataset, table),
        order=hashlib.sha256(repr(content).encode()).hexdigest(),
    )


def _names(raw: Iterable[str], item: Item, dataset: SourceDataset, table: LabelTable) -> frozenset[str]:
    place = _place(item, dataset)
    return frozenset(name for each in raw if (name := table.name_of(each, place)) is not None)


def _place(item: Item, dataset: SourceDataset) -> Place:
    return place_of(dataset.region, item.modality)


def _regions(present: frozenset[str], dataset: SourceDataset, table: LabelTable) -> frozenset[str]:
    """The regions that an image shows: what all its labels have in common, within the dataset's own; else all of theirs."""
    known: list[set[str]] = [
        table.labels[name].regions for name in sorted(present) if name in table.labels and table.labels[name].regions
    ]
    given = regions_named(dataset.region)
    if not known:
        return frozenset(given)
    shared = set.intersection(*known)
    found = shared or set().union(*known)
    return frozenset((found & given) or (given or found))


def without_duplicates(cases: list[Candidate], bits: int) -> tuple[list[Candidate], Counter[str]]:
    """The cases on pictures of different patients or datasets that are no near-duplicates of one another (the first by `order` stays), and
    counts. Two near-duplicates that are labelled differently for one task contradict each other: both go."""
    import numpy as np

    counts: Counter[str] = Counter()
    if bits < 0 or not cases:
        return cases, counts
    first: dict[tuple[str, str, str], Candidate] = {}
    labels: dict[tuple[str, str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for case in sorted(cases, key=lambda case: case.order):
        shown = case.item.picture, case.item.patient, case.item.dataset
        first.setdefault(shown, case)
        if case.granularity == IMAGE:
            labels[shown][case.task] |= set(case.answers)
    pictures = list(first)
    hashes = np.array([int(case.item.phash, 16) for case in first.values()], np.uint64)
    sources = np.array([f"{patient}\0{dataset}" for _, patient, dataset in pictures])
    gone: set[tuple[str, str, str]] = set()
    alive = np.ones(len(pictures), bool)
    for at, picture in enumerate(pictures):
        if not alive[at]:
            continue
        is_near = (np.bitwise_count(hashes[at + 1 :] ^ hashes[at]) <= bits) & (sources[at + 1 :] != sources[at])
        for other in np.flatnonzero(is_near & alive[at + 1 :]) + (at + 1):
            alive[other] = False
            gone.add(pictures[other])
            one, two = labels[picture], labels[pictures[other]]
            if any(one[task] != two[task] for task in one.keys() & two.keys()) and picture not in gone:
                gone.add(picture)
                counts["near-duplicates that are labelled differently"] += 1
    kept = [case for case in cases if (case.item.picture, case.item.patient, case.item.dataset) not in gone]
    counts["near-duplicate of a picture of another patient or dataset"] = len(cases) - len(kept)
    return kept, counts
