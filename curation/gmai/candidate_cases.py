"""Turn items into candidate cases.

A case is a possible question: one image with one target, or with all labels of the whole image, at
one granularity, with its task and department.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from curation.gmai.label_table import LabelTable, Tags, parse_regions
from curation.gmai.sources import IMAGE_LEVEL, KIND_GRANULARITIES, Item, Sources
from dataset_builders.errors import BadInput
from dataset_builders.terms import ImageContext, parse_image_context

Cell = tuple[str, str, str]
"""(modality, task, granularity). The cases of a cell share question templates and possible
options.
"""

LabelledItem = tuple[Item, str, str, str]
"""An item with its canonical label, task and department."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible question, before its text and options are chosen."""

    case: str
    answers: tuple[str, ...]
    """Canonical labels; several for multiple choice."""
    item: Item
    task: str
    department: str
    granularity: str
    modality: str
    present: frozenset[str]
    """Canonical labels on the picture."""
    regions: frozenset[str]
    """Body regions; empty if unknown."""
    order: str
    """Hash of content and seed that decides all random draws, so that they are reproducible."""
    unsure: frozenset[str] = frozenset()
    """Canonical labels that may or may not be on the picture."""
    overlapping: frozenset[str] = frozenset()
    """Canonical labels on the picture whose region overlaps the target's or is unknown."""

    @property
    def cell(self) -> Cell:
        return self.modality, self.task, self.granularity

    @property
    def picture_key(self) -> tuple[str, str, str]:
        return self.item.picture, self.item.patient, self.item.dataset

    @property
    def shared_ids(self) -> list[str]:
        """Return patient and pictures: cases that share one stay in one split and one fold."""
        return [self.item.patient, *(picture for picture, _ in self.item.pictures)]

    @property
    def is_multiple(self) -> bool:
        return len(self.answers) > 1

    @property
    def answer(self) -> str:
        """Return the key by which cases are counted: all labels of the answer, joined."""
        return "; ".join(self.answers)


def make_cases(
    items: list[Item], sources: Sources, table: LabelTable, tags: Tags
) -> tuple[list[Candidate], Counter[str], dict[tuple[str, str], int]]:
    """Make the candidate cases of all items.

    Args:
        items: targets with their stored pictures.
        sources: sources.yaml.
        table: canonical labels.
        tags: the taggers' task and department per label.

    Returns:
        Cases; number of items left out, by reason; number of items per unmapped (reason, raw
        label).

    Raises:
        BadInput: no label is mapped, or a tag is not in the tree.
    """
    builder = _CaseBuilder(sources, table, tags)
    unmapped: dict[tuple[str, str], int] = Counter()
    mapped_items: list[tuple[Item, str]] = []
    for item in items:
        name, reason = table.resolve(item.label, builder.place(item))
        if name is None:
            unmapped[reason, item.label] += 1
        else:
            mapped_items.append((item, name))

    if not mapped_items:
        examples = ", ".join(f"{label!r} {reason}" for reason, label in list(unmapped)[:5])
        raise BadInput(
            f"no label is mapped: {examples}, and {max(0, len(unmapped) - 5)} more. "
            "Add rows for them to a labels.csv (name, raw, task, department, region) "
            "and set `labels` in sources.yaml."
        )

    # First collect what any dataset states about each picture, since every case below needs all of
    # it.
    for item, name in mapped_items:
        builder.known_labels[item.picture][0].update({name}, builder.canonical_names(item.present, item))
        builder.known_labels[item.picture][1].update(builder.canonical_names(item.unsure, item))

    left_out: Counter[str] = Counter({"label is in no table": sum(unmapped.values())} if unmapped else {})
    cases: list[Candidate] = []
    invalid_tags: set[str] = set()
    class_labels: dict[tuple[str, str, str], list[LabelledItem]] = defaultdict(list)
    for item, name in mapped_items:
        task, department = builder.tag("task", item, name), builder.tag("department", item, name)
        invalid_tags |= {
            f"{subject} {value!r} of {name!r}"
            for subject, value, allowed in (
                ("task", task, sources.tasks),
                ("department", department, sources.departments),
            )
            if value and value not in allowed
        }
        if not task or not department:
            left_out[f"label without a {'department' if task else 'task'}"] += 1
        elif item.kind == "class":
            class_labels[item.dataset, item.picture, item.patient].append((item, name, task, department))
        else:
            cases += [
                builder.build_case(item, (name,), task, department, granularity)
                for granularity in KIND_GRANULARITIES[item.kind]
            ]

    if invalid_tags:
        raise BadInput(
            f"{'; '.join(sorted(invalid_tags)[:5])}: not in the tree. "
            "Use the tree's values, or give `tasks` and `departments`."
        )

    # In a multi-label dataset, a finding may be present although the picture is not labelled with
    # it.
    multi_label_datasets = {
        name for (name, _, _), labels_of_picture in class_labels.items() if len(labels_of_picture[0][0].present) > 1
    }
    for (name, _, _), labels_of_picture in class_labels.items():
        if reason := builder.problem_of(labels_of_picture, name in multi_label_datasets):
            left_out[f"whole image: {reason}"] += len(labels_of_picture)
        else:
            cases += builder.whole_image_cases(labels_of_picture)
    return cases, left_out, unmapped


class _CaseBuilder:
    """Make cases from items.

    `known_labels` maps a picture to (labels on it, labels that may be on it), over all datasets
    that contain the same pixels, since they may have been labelled twice.
    """

    def __init__(self, sources: Sources, table: LabelTable, tags: Tags) -> None:
        self.seed, self.table, self.tags = sources.seed, table, tags
        self.datasets = {dataset.name: dataset for dataset in sources.datasets}
        self.known_labels: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))

    def place(self, item: Item) -> ImageContext:
        """Return the region and modality that determine the meaning of the item's labels."""
        return parse_image_context(self.datasets[item.dataset].region, item.modality)

    def canonical_names(self, raw: Iterable[str], item: Item) -> frozenset[str]:
        """Return the canonical names of the raw labels that are mapped."""
        place = self.place(item)
        return frozenset(name for raw_label in raw if (name := self.table.canonical_name(raw_label, place)) is not None)

    def tag(self, subject: str, item: Item, name: str) -> str:
        """Return an item's task or department.

        The first that states it decides: the dataset, the taggers, the label table.
        """
        return (
            getattr(self.datasets[item.dataset], subject)
            or self.tags.get(name, {}).get(subject)
            or str(getattr(self.table.labels[name], subject))
        )

    def problem_of(self, picture_labels: list[LabelledItem], has_several: bool) -> str:
        """Return why the classes of a picture cannot be asked about; "" if they can.

        Args:
            picture_labels: the classes of the picture.
            has_several: True if any picture of the dataset has several classes.
        """
        item = picture_labels[0][0]
        dataset = self.datasets[item.dataset]
        if any(other_item.present != item.present for other_item, _, _, _ in picture_labels):
            return "two files with the same pixels are labelled differently"
        if any(self.table.canonical_name(raw, self.place(item)) is None for raw in item.present):
            return "one of its labels is not mapped"
        if has_several and not dataset.exhaustive and dataset.reader != "wide":
            return "a multi-label dataset that is not labelled exhaustively"
        return ""

    def whole_image_cases(self, picture_labels: list[LabelledItem]) -> list[Candidate]:
        """Make one case per task from all classes of a picture.

        A label that is an ancestor of another label of the picture is left out, since it adds
        nothing.
        """
        ancestors = {ancestor for _, name, _, _ in picture_labels for ancestor in self.table.ancestors(name)}
        by_task: dict[str, dict[str, LabelledItem]] = defaultdict(dict)
        for item, name, task, department in picture_labels:
            if name not in ancestors:
                by_task[task][name] = item, name, task, department

        cases = []
        for task, labels in by_task.items():
            item, _, _, department = next(iter(labels.values()))
            cases.append(self.build_case(item, tuple(sorted(labels)), task, department, IMAGE_LEVEL))
        return cases

    def build_case(self, item: Item, names: tuple[str, ...], task: str, department: str, granularity: str) -> Candidate:
        """Make one case from an item.

        The location of a label that only another dataset states is unknown, so it counts as
        overlapping.
        """
        own_labels = self.canonical_names(item.present, item) | set(names)
        known_labels, unsure = self.known_labels[item.picture]
        labels_elsewhere = frozenset(known_labels) - own_labels
        present = own_labels | labels_elsewhere if granularity == IMAGE_LEVEL else own_labels

        # The order may depend only on content and seed, not on file names or on the order of
        # reading.
        content = [
            self.seed,
            item.dataset,
            item.picture,
            names,
            granularity,
            item.box,
            item.mask,
            *item.further_slices,
        ]

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
            overlapping=self.canonical_names(item.overlapping, item) | labels_elsewhere,
            regions=self.shown_regions(present, item),
            order=hashlib.sha256(repr(content).encode()).hexdigest(),
        )

    def shown_regions(self, present: frozenset[str], item: Item) -> frozenset[str]:
        """Return the body regions that an image shows.

        These are the regions that all labels have in common (or, if there are none, those of any
        label), limited to the regions that the dataset states.
        """
        label_regions = [regions for name in sorted(present) if (regions := self.table.label(name).regions)]
        dataset_regions = parse_regions(self.datasets[item.dataset].region)
        common_regions = (set.intersection(*label_regions) or set().union(*label_regions)) if label_regions else set()
        return frozenset((common_regions & dataset_regions) or dataset_regions or common_regions)


def drop_near_duplicates(cases: list[Candidate], bits: int) -> tuple[list[Candidate], Counter[str]]:
    """Drop near-duplicates among pictures of different patients or datasets.

    Of two near-duplicates, the one whose case comes first by `order` is kept. If they have
    different labels for the same task, both are dropped, since they contradict each other.

    Args:
        cases: candidate cases.
        bits: maximum number of differing hash bits (of 64) of near-duplicates; if negative, nothing
            is dropped.

    Returns:
        The remaining cases, and counts of dropped ones.
    """
    counts: Counter[str] = Counter()
    if bits < 0 or not cases:
        return cases, counts

    first_cases: dict[tuple[str, str, str], Candidate] = {}
    labels: dict[tuple[str, str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for case in sorted(cases, key=lambda case: case.order):
        first_cases.setdefault(case.picture_key, case)
        if case.granularity == IMAGE_LEVEL:
            labels[case.picture_key][case.task] |= set(case.answers)

    pictures = list(first_cases)
    hashes = np.array([int(case.item.phash, 16) for case in first_cases.values()], np.uint64)
    sources = np.array([f"{patient}\0{dataset}" for _, patient, dataset in pictures])

    dropped: set[tuple[str, str, str]] = set()
    is_candidate = np.ones(len(pictures), bool)
    for index, picture in enumerate(pictures):
        if is_candidate[index]:
            # Slices and repeat studies of one patient are expected to look alike.
            is_near = (np.bitwise_count(hashes ^ hashes[index]) <= bits) & (sources != sources[index]) & is_candidate
            neighbours = [pictures[neighbour] for neighbour in np.flatnonzero(is_near)]
            is_candidate &= ~is_near
            dropped.update(neighbours)
            if any(
                labels[picture][task] != labels[neighbour][task]
                for neighbour in neighbours
                for task in labels[picture].keys() & labels[neighbour].keys()
            ):
                dropped.add(picture)
                counts["near-duplicates with different labels"] += 1

    unique_cases = [case for case in cases if case.picture_key not in dropped]
    counts["near-duplicate of a picture of another patient or dataset"] = len(cases) - len(unique_cases)
    return unique_cases, counts
