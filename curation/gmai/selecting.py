"""Choose the cases that become questions and their wrong options, and keep these from one run to the next.

At most 30 cases of each answer, at most one per patient, far apart in appearance, even over source, age and sex. A question keeps its words
and options as long as they are right (what a person has validated must not change), its number and its patient's split for good.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curation.gmai.candidate_cases import Candidate, Cell
from curation.gmai.label_table import LabelTable
from curation.gmai.sources import IMAGE_LEVEL, Sources
from dataset_builders.case_groups import connected_components
from dataset_builders.files import replace_file
from dataset_builders.schema import LETTERS
from dataset_builders.terms import normalize_term


def select_cases(cases: list[Candidate], sources: Sources) -> tuple[list[Candidate], Counter[str]]:
    """The chosen cases in order of `order`, and how many fell to each limit."""
    counts: Counter[str] = Counter()
    cells: dict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.order):
        cells[(*case.cell, case.answer)].append(case)
    chosen: list[Candidate] = []
    for own in cells.values():
        per_patient = _limit_patients(own, sources.per_patient)
        counts["more cases of one patient and answer"] += len(own) - len(per_patient)
        kept = _far_apart(per_patient, sources)
        counts[f"over {sources.per_answer} cases per answer"] += len(per_patient) - len(kept)
        chosen += kept
    return sorted(chosen, key=lambda case: case.order), counts


def _limit_patients(cases: list[Candidate], most: int | None) -> list[Candidate]:
    """At most `most` cases of each patient, those with the largest target."""
    if most is None:
        return cases
    kept: list[Candidate] = []
    taken: Counter[str] = Counter()
    for case in sorted(cases, key=lambda case: (-case.item.area, case.order)):
        if taken[case.item.patient] < most:
            taken[case.item.patient] += 1
            kept.append(case)
    return sorted(kept, key=lambda case: case.order)


def _far_apart(cases: list[Candidate], sources: Sources) -> list[Candidate]:
    """Farthest-first: each next case is the one farthest from all chosen ones (in bits of the perceptual hashes), within the stratum that
    has the fewest so far."""
    if len(cases) <= sources.per_answer:
        return cases
    hashes = np.array([int(case.item.phash, 16) for case in cases], np.uint64)
    strata = [tuple(_stratum_value(case, name) for name in sources.even) for case in cases]
    nearest = np.full(len(cases), 64)
    chosen: list[int] = []
    open_ = set(range(len(cases)))
    used: Counter[tuple[str, ...]] = Counter()
    while len(chosen) < sources.per_answer:
        fewest = min(used[strata[at]] for at in open_)
        pool = [at for at in sorted(open_) if used[strata[at]] == fewest]
        best = max(pool, key=lambda at: nearest[at]) if chosen else pool[0]
        chosen.append(best)
        open_.remove(best)
        used[strata[best]] += 1
        nearest = np.minimum(nearest, np.bitwise_count(hashes ^ hashes[best]))
    return [cases[at] for at in sorted(chosen)]


def _stratum_value(case: Candidate, name: str) -> str:
    if name == "source":
        return case.item.dataset
    value = case.item.attributes.get(name, "")
    if name == "age":  # by decade: "045Y" (DICOM) and "45" alike
        digits = "".join(sign for sign in value.split(".")[0] if sign.isdecimal())
        return str(int(digits) // 10 if digits and not value.upper().endswith(("M", "W", "D")) else "")
    return value.casefold()


def split_cases(cases: list[Candidate], sources: Sources, earlier: Mapping[str, str] | None = None) -> dict[str, str]:
    """Case -> validation or test, by patient, and where two share a picture by both: patients go to validation, in an order drawn with the
    seed, until its share is full.

    `earlier`: patient -> split of earlier runs, which stays (a validation answer has been shown, a test answer has not); of patients of
    both who share a picture now, all go to validation.
    """
    earlier = earlier or {}

    def shown_by(case: Candidate) -> list[str]:
        return [case.item.patient, *(picture for picture, _ in case.item.pictures)]

    def split_before(patient_cases: list[Candidate]) -> str:
        before = {earlier.get(case.item.patient, "") for case in patient_cases}
        return "validation" if "validation" in before else "test" if "test" in before else ""

    wanted = round(sources.validation * len(cases))
    parts = sorted(connected_components(cases, shown_by), key=lambda each: min(case.order for case in each))
    shown = sum(len(part) for part in parts if split_before(part) == "validation")
    splits: dict[str, str] = {}
    for part in parts:
        name = split_before(part)
        if not name:
            name = "validation" if shown < wanted else "test"
            shown += len(part) if name == "validation" else 0
        splits |= {case.case: name for case in part}
    return splits


# What stays

QUESTIONS_FILE = "questions.json"
"""File with the selection of the last run, for the next run and for the pages."""


@dataclass(frozen=True)
class WrittenQuestion:
    """A case with its words, options and split."""

    case: Candidate
    question: str
    choice: OptionSet
    split: str
    index: int
    """The question's name in the set: a number from 1."""

    @property
    def letters(self) -> str:
        """The right letters: "B", or "A,C"."""
        return ",".join(LETTERS[at] for at in self.choice.right)


@dataclass(frozen=True)
class EarlierQuestions:
    """What earlier runs have drawn: case -> number, case -> words and options, patient -> split (none where the seed or the share of the
    validation is another one now)."""

    indices: Mapping[str, int]
    drawn: Mapping[str, tuple[str, OptionSet]]
    splits: Mapping[str, str]

    def numbered(self, cases: Sequence[Candidate], splits: Mapping[str, str]) -> dict[str, int]:
        """Case -> index: as before, new ones after all others (validation first, then single choice, then in the order drawn)."""
        fresh = [case for case in cases if case.case not in self.indices]
        fresh.sort(key=lambda case: (splits[case.case] != "validation", case.is_multiple, case.order))
        after = max(self.indices.values(), default=0)
        return dict(self.indices) | {case.case: after + number for number, case in enumerate(fresh, 1)}


def read_earlier_questions(private: Path, sources: Sources) -> EarlierQuestions:
    """The selections of earlier runs."""
    if not (private / QUESTIONS_FILE).is_file():
        return EarlierQuestions({}, {}, {})
    kept = json.loads((private / QUESTIONS_FILE).read_text(encoding="utf-8"))
    drawn = {
        each["case"]: (each["question"], OptionSet(tuple(each["options"]), tuple(each["right"])))
        for each in kept["cases"]
    }
    return EarlierQuestions(
        kept["indices"], drawn, kept["splits"] if kept["drawn_with"] == _drawn_with(sources) else {}
    )


def write_questions_file(
    private: Path, written: list[WrittenQuestion], before: EarlierQuestions, sources: Sources, gone: Set[str]
) -> None:
    """Keep the numbers and splits of this run and of earlier ones (no split of patients who are `gone`), the questions of this run with
    their geometry, and what the pages show beside them."""
    splits = dict(before.splits) | {each.case.item.patient: each.split for each in written}
    cases = [
        {
            "case": each.case.case, "pictures": each.case.item.pictures, "question": each.question, "options": each.choice.options,
            "right": each.choice.right, "task": each.case.task, "department": each.case.department,
            "granularity": each.case.granularity, "modality": each.case.modality, "box": each.case.item.box,
        }
        for each in written
    ]  # fmt: skip
    document = {
        "drawn_with": _drawn_with(sources),
        "splits": {patient: name for patient, name in splits.items() if patient not in gone},
        "indices": dict(before.indices) | {each.case.case: each.index for each in written},
        "cases": cases,
        "tasks": sources.tasks,
        "departments": sources.departments,
        "overlay": sources.overlay.model_dump(),
        "seed": sources.seed,
    }
    replace_file(private / QUESTIONS_FILE, json.dumps(document, ensure_ascii=False).encode())


def _drawn_with(sources: Sources) -> list[float]:
    return [sources.seed, sources.validation]


@dataclass(frozen=True)
class OptionSet:
    """The options of a case and the positions of the right ones (0-based)."""

    options: tuple[str, ...]
    right: tuple[int, ...]


class OptionPools:
    """Labels that can be options: of the same dataset at image level, of the same (modality, task, granularity) at region level."""

    def __init__(self, cases: Iterable[Candidate], table: LabelTable) -> None:
        self.table = table
        self._names: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for case in cases:
            self._names[self._scope(case)].update(case.answers)

    @staticmethod
    def _scope(case: Candidate) -> tuple[str, ...]:
        return (case.item.dataset if case.granularity == IMAGE_LEVEL else "", *case.cell)

    def of(self, case: Candidate) -> list[str]:
        """Every label that can be a wrong option of this case, in order of name."""
        return sorted(name for name in self._names[self._scope(case)] if self._is_wrong(name, case))

    def _is_wrong(self, name: str, case: Candidate) -> bool:
        """True if a label is surely no answer to a case, and no answer's synonym, parent or child.

        At region level other labels of the image stay: an answerer that ignores the mark has to choose among them.
        """
        is_image = case.granularity == IMAGE_LEVEL
        shown = (*case.answers, *(case.present if is_image else case.overlapping))
        if name in case.unsure or any(self.table.related(name, each) for each in shown):
            return False
        if is_image:
            return self.table.can_be_shown(name, case.modality, case.regions)
        return not any(_is_word_subset(name, each) for each in case.answers)


def _is_word_subset(one: str, other: str) -> bool:
    """True if all words of one label are among the other's: a marked kidney tumour lies in a kidney."""
    first, second = set(normalize_term(one).split()), set(normalize_term(other).split())
    return first <= second or second <= first


class OptionDrawer:
    """Draws options with a seed; letters are balanced over the questions of a split with the same number of options."""

    def __init__(self, sources: Sources, pools: OptionPools, frequency: Counter[tuple[Cell, str]]) -> None:
        """frequency: how often a label is an answer in its cell. A label is drawn as a wrong option in proportion to it, so that what is
        often right is often wrong, too, and the text alone says nothing."""
        self.sources, self.pools, self.frequency = sources, pools, frequency
        self.used: Counter[tuple[str, bool, int, int]] = Counter()

    def draw(self, case: Candidate, split: str) -> OptionSet | None:
        """The options of a case; None where the pool leaves fewer than two, or where five do not hold a wrong one. At region level one of
        the wrong ones is on the image, where any may be: else the mark would not be needed."""
        rng = random.Random(f"options {case.order}")
        fewest, most = self.sources.options
        answers = list(case.answers)
        if len(answers) + 1 > most:
            return None
        wanted = max(rng.randint(fewest, most), len(answers) + 1) - len(answers)
        wrong: list[str] = []
        # Weighted sampling without replacement (Efraimidis and Spirakis 2006): the largest u ** (1 / weight) first.
        weights = {name: max(self.frequency[case.cell, name], 1) for name in self.pools.of(case)}
        drawn = {name: rng.random() ** (1 / weight) for name, weight in weights.items()}
        names = sorted(drawn, key=lambda name: -drawn[name])
        here = next((name for name in names if case.granularity != IMAGE_LEVEL and name in case.present), None)
        for name in sorted(names, key=lambda name: name != here):
            if len(wrong) < wanted and not any(self.pools.table.related(name, other) for other in wrong):
                wrong.append(name)
        if not wrong or len(wrong) + len(answers) < fewest:
            return None
        return self._placed(case, answers, wrong, split, rng)

    def _placed(
        self, case: Candidate, answers: list[str], wrong: list[str], split: str, rng: random.Random
    ) -> OptionSet:
        size = len(answers) + len(wrong)
        positions = list(range(size))
        rng.shuffle(positions)
        positions.sort(key=lambda at: self.used[split, case.is_multiple, size, at])
        right = positions[: len(answers)]
        self.take(case, split, size, right)
        rng.shuffle(answers)
        rng.shuffle(wrong)
        options = [""] * size
        for at, name in zip([*right, *sorted(set(range(size)) - set(right))], [*answers, *wrong], strict=True):
            options[at] = name
        return OptionSet(tuple(options), tuple(sorted(right)))

    def take(self, case: Candidate, split: str, size: int, right: Iterable[int]) -> None:
        """Count the letters of a question that stands already."""
        self.used.update((split, case.is_multiple, size, at) for at in right)

    def still_stands(self, case: Candidate, choice: OptionSet) -> bool:
        """True if options that were drawn in an earlier run are still right: the same answers, and wrong ones that may be."""
        right = {choice.options[at] for at in choice.right}
        wrong = set(choice.options) - right
        fewest, most = self.sources.options
        is_right = right == set(case.answers) and wrong and wrong <= set(self.pools.of(case))
        return bool(is_right and fewest <= len(choice.options) <= most)
