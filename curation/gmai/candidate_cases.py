"""From items to cases: a case is one image with one target, or all labels of the image, at one granularity, and its tags."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from curation.gmai.items import Item
from curation.gmai.label_table import LabelTable, Tags, parse_regions
from curation.gmai.sources import IMAGE_LEVEL, KIND_GRANULARITIES, Sources
from dataset_builders.errors import BadInput
from dataset_builders.terms import ImageContext, parse_image_context

Cell = tuple[str, str, str]
"""(modality, task, granularity): what shares questions and, at region level, options."""


LabelledItem = tuple[Item, str, str, str]
"""An item with its canonical label, task and department."""


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

    Raises BadInput if no label is mapped, or a tag is none of the tree's values.
    """
    making = _CaseBuilder(sources, table, tags)
    unmapped: dict[tuple[str, str], int] = Counter()
    mapped: list[tuple[Item, str]] = []
    for item in items:
        place = making.place(item)
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
    for item, name in mapped:
        making.known[item.picture][0].update({name}, making.names(item.present, item))
        making.known[item.picture][1].update(making.names(item.unsure, item))
    left_out: Counter[str] = Counter({"label that no table maps": sum(unmapped.values())} if unmapped else {})
    cases: list[Candidate] = []
    wrong: set[str] = set()
    whole: dict[tuple[str, str, str], list[LabelledItem]] = defaultdict(list)
    for item, name in mapped:
        task, department = making.tag("task", item, name), making.tag("department", item, name)
        wrong |= {f"task {task!r} of {name!r}"} if task not in ("", *sources.tasks) else set()
        wrong |= {f"department {department!r} of {name!r}"} if department not in ("", *sources.departments) else set()
        if not task or not department:
            left_out[f"label without a {'department' if task else 'task'}"] += 1
        elif item.kind == "class" and "granularity" not in item.tags:
            whole[item.dataset, item.picture, item.patient].append((item, name, task, department))
        else:
            granularities = (item.tags["granularity"],) if "granularity" in item.tags else KIND_GRANULARITIES[item.kind]
            cases += [making.case(item, (name,), task, department, each) for each in granularities]
    if wrong:
        raise BadInput(
            f"{'; '.join(sorted(wrong)[:5])}: not in the tree. Use the tree's values, or give `tasks` and `departments`."
        )
    several = {name for (name, _, _), found in whole.items() if len(found[0][0].present) > 1}
    for (name, _, _), found in whole.items():
        if why := making.problem_of(found, name in several):
            left_out[f"whole image: {why}"] += len(found)
        else:
            cases += making.whole_image(found)
    return cases, left_out, unmapped


class _CaseBuilder:
    """What cases are made by. known: picture -> (labels that are on it, labels that may be) by all sources that hold its pixels: they may
    be labelled twice."""

    def __init__(self, sources: Sources, table: LabelTable, tags: Tags) -> None:
        self.seed, self.table, self.tags = sources.seed, table, tags
        self.datasets = {dataset.name: dataset for dataset in sources.datasets}
        self.known: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))

    def place(self, item: Item) -> ImageContext:
        return parse_image_context(self.datasets[item.dataset].region, item.modality)

    def names(self, raw: Iterable[str], item: Item) -> frozenset[str]:
        place = self.place(item)
        return frozenset(name for each in raw if (name := self.table.name_of(each, place)) is not None)

    def tag(self, subject: str, item: Item, name: str) -> str:
        """By the source itself, the dataset, the taggers, or the label table, whichever speaks first."""
        return (
            item.tags.get(subject)
            or getattr(self.datasets[item.dataset], subject)
            or self.tags.values.get(name, {}).get(subject)
            or str(getattr(self.table.labels[name], subject))
        )

    def problem_of(self, found: list[LabelledItem], has_several: bool) -> str:
        """Why the classes of a picture cannot be asked about; "" where they can. has_several: some picture of the set has several."""
        item = found[0][0]
        dataset = self.datasets[item.dataset]
        if any(other.present != item.present for other, _, _, _ in found):
            return "two files with the same pixels are labelled differently"
        if any(self.table.name_of(raw, self.place(item)) is None for raw in item.present):
            return "one of its labels is not mapped"
        if has_several and not dataset.exhaustive and dataset.reader != "wide":
            return "a set with several labels an image that is not labelled exhaustively"
        return ""

    def whole_image(self, found: list[LabelledItem]) -> list[Candidate]:
        """The cases of a picture's classes: all at once per task. A label above another one of the picture says nothing more and is left
        out."""
        above = {ancestor for _, name, _, _ in found for ancestor in self.table.ancestors(name)}
        by_task: dict[str, dict[str, LabelledItem]] = defaultdict(dict)
        for item, name, task, department in found:
            if name not in above:
                by_task[task][name] = item, name, task, department
        made = []
        for task, own in by_task.items():
            item, _, _, department = next(iter(own.values()))
            made.append(self.case(item, tuple(sorted(own)), task, department, IMAGE_LEVEL))
        return made

    def case(self, item: Item, names: tuple[str, ...], task: str, department: str, granularity: str) -> Candidate:
        """Where a label that only another source knows of lies is not known: it may lie where the target does."""
        own = self.names(item.present, item) | set(names)
        shown, unsure = self.known[item.picture]
        elsewhere = frozenset(shown) - own
        present = own | elsewhere if granularity == IMAGE_LEVEL else own
        content = [self.seed, item.dataset, item.picture, names, granularity, item.box, item.mask, *item.more]
        return Candidate(
            case=f"{item.item}-{granularity.split(maxsplit=1)[0].lower()}" + ("-multiple" if len(names) > 1 else ""),
            answers=names,
            item=item,
            task=task,
            department=department,
            granularity=granularity,
            modality=item.modality,
            present=present,
            unsure=frozenset(unsure),
            overlapping=self.names(item.overlapping, item) | elsewhere,
            regions=self.regions(present, item),
            order=hashlib.sha256(repr(content).encode()).hexdigest(),
        )

    def regions(self, present: frozenset[str], item: Item) -> frozenset[str]:
        """The regions that an image shows: what all its labels have in common, within the dataset's own; else all of theirs."""
        known = [regions for name in sorted(present) if (regions := self.table.label(name).regions)]
        given = parse_regions(self.datasets[item.dataset].region)
        found = (set.intersection(*known) or set().union(*known)) if known else set()
        return frozenset((found & given) or given or found)


def drop_near_duplicates(cases: list[Candidate], bits: int) -> tuple[list[Candidate], Counter[str]]:
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
        if case.granularity == IMAGE_LEVEL:
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
