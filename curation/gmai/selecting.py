"""Choose the cases that become questions, draw their wrong options, and keep both between runs.

By default at most 30 cases are chosen per answer, and one per answer and patient. They are chosen
to differ in appearance and to be balanced over sources (optionally also age, sex and site).

A question keeps its text and options as long as they are correct, since what a person has validated
must not change. It keeps its number forever, and its patient keeps its split.
"""

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
    """Choose cases within the limits.

    Args:
        cases: candidate cases.
        sources: limits per answer and patient.

    Returns:
        The chosen cases, sorted by `order`, and how many cases each limit removed.
    """
    counts: Counter[str] = Counter()
    cells: dict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.order):
        cells[(*case.cell, case.answer)].append(case)

    chosen: list[Candidate] = []
    for answer_cases in cells.values():
        per_patient = _limit_patients(answer_cases, sources.per_patient)
        counts["more cases of one patient and answer"] += len(answer_cases) - len(per_patient)
        spread_cases = _far_apart(per_patient, sources)
        counts[f"over {sources.per_answer} cases per answer"] += len(per_patient) - len(spread_cases)
        chosen += spread_cases
    return sorted(chosen, key=lambda case: case.order), counts


def _limit_patients(cases: list[Candidate], per_patient: int | None) -> list[Candidate]:
    """Keep at most `per_patient` cases of each patient (None: all), the largest targets."""
    by_patient: dict[str, list[Candidate]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: (-case.item.area, case.order)):
        by_patient[case.item.patient].append(case)
    largest = [case for patient_cases in by_patient.values() for case in patient_cases[:per_patient]]
    return sorted(largest, key=lambda case: case.order)


def _far_apart(cases: list[Candidate], sources: Sources) -> list[Candidate]:
    """Choose cases that differ in appearance, by farthest-first traversal.

    Each next case is taken from the strata (`sources.even`) with the fewest chosen cases. It is the
    case whose perceptual hash differs most from the nearest one among the chosen cases.
    """
    if len(cases) <= sources.per_answer:
        return cases

    hashes = np.array([int(case.item.phash, 16) for case in cases], np.uint64)
    strata = [tuple(_stratum_value(case, name) for name in sources.even) for case in cases]
    nearest = np.full(len(cases), 64)
    chosen: list[int] = []
    remaining = set(range(len(cases)))
    stratum_counts: Counter[tuple[str, ...]] = Counter()

    while len(chosen) < sources.per_answer:
        fewest = min(stratum_counts[strata[index]] for index in remaining)
        pool = [index for index in sorted(remaining) if stratum_counts[strata[index]] == fewest]
        best = max(pool, key=lambda index: nearest[index]) if chosen else pool[0]
        chosen.append(best)
        remaining.remove(best)
        stratum_counts[strata[best]] += 1

        # Update each case's distance to its nearest chosen case.
        nearest = np.minimum(nearest, np.bitwise_count(hashes ^ hashes[best]))
    return [cases[index] for index in sorted(chosen)]


def _stratum_value(case: Candidate, name: str) -> str:
    """Return a case's value of a balanced attribute."""
    if name == "source":
        return case.item.dataset
    value = case.item.attributes.get(name, "")
    if name == "age":  # decade, from "045Y" (DICOM) or "45"
        digits = "".join(character for character in value.split(".")[0] if character.isdecimal())
        return str(int(digits) // 10 if digits and not value.upper().endswith(("M", "W", "D")) else "")
    return value.casefold()


def split_cases(cases: list[Candidate], sources: Sources, earlier_splits: Mapping[str, str]) -> dict[str, str]:
    """Assign each case to validation or test.

    Cases that share a patient or a picture stay together. Patients, in an order that depends on the
    seed, are assigned to validation until its share is reached, and then to test.

    Args:
        cases: chosen cases.
        sources: share of the validation split.
        earlier_splits: patient -> split in earlier runs, which is kept. If patients of both splits
            now share a picture, all of them are assigned to validation, since validation answers
            are already public.

    Returns:
        Case -> split.
    """

    def split_before(patient_cases: list[Candidate]) -> str:
        split_names = {earlier_splits.get(case.item.patient, "") for case in patient_cases}
        return "validation" if "validation" in split_names else "test" if "test" in split_names else ""

    validation_target = round(sources.validation * len(cases))

    components = connected_components(cases, lambda case: case.shared_ids)
    components.sort(key=lambda component: min(case.order for case in component))
    validation_count = sum(len(component) for component in components if split_before(component) == "validation")

    splits: dict[str, str] = {}
    for component in components:
        split_name = split_before(component)
        if not split_name:
            split_name = "validation" if validation_count < validation_target else "test"
            validation_count += len(component) if split_name == "validation" else 0
        splits |= {case.case: split_name for case in component}
    return splits


# Questions kept between runs

QUESTIONS_FILE = "questions.json"
"""File with the questions of the last run, for the next run and the review pages."""


@dataclass(frozen=True)
class OptionSet:
    """The options of a case and the 0-based positions of the correct ones."""

    options: tuple[str, ...]
    right: tuple[int, ...]


@dataclass(frozen=True)
class WrittenQuestion:
    """A case with its text, options and split."""

    case: Candidate
    question: str
    choice: OptionSet
    split: str
    index: int
    """Number of the question in the benchmark, from 1."""

    @property
    def letters(self) -> str:
        """Return the correct letters, e.g. "B" or "A,C"."""
        return ",".join(LETTERS[at] for at in self.choice.right)


@dataclass(frozen=True)
class EarlierQuestions:
    """Results of earlier runs: case -> number, case -> (text, options), patient -> split.

    Splits are dropped if the seed or the share of the validation split has changed.
    """

    indices: Mapping[str, int]
    questions: Mapping[str, tuple[str, OptionSet]]
    splits: Mapping[str, str]

    def number_cases(self, cases: Sequence[Candidate], splits: Mapping[str, str]) -> dict[str, int]:
        """Return case -> number; old cases keep their numbers, and new ones follow.

        New cases are sorted by split (validation first), then by the number of correct options
        (single before multiple choice), then by `order`.
        """
        new_cases = [case for case in cases if case.case not in self.indices]
        new_cases.sort(key=lambda case: (splits[case.case] != "validation", case.is_multiple, case.order))
        last_index = max(self.indices.values(), default=0)
        return dict(self.indices) | {case.case: last_index + number for number, case in enumerate(new_cases, 1)}


def read_earlier_questions(private: Path, sources: Sources) -> EarlierQuestions:
    """Read the questions of earlier runs."""
    if not (private / QUESTIONS_FILE).is_file():
        return EarlierQuestions({}, {}, {})
    document = json.loads((private / QUESTIONS_FILE).read_text(encoding="utf-8"))
    questions = {
        entry["case"]: (
            entry["question"],
            OptionSet(tuple(entry["options"]), tuple(entry["right"])),
        )
        for entry in document["cases"]
    }
    return EarlierQuestions(
        document["indices"],
        questions,
        document["splits"] if document["drawn_with"] == _drawn_with(sources) else {},
    )


def write_questions_file(
    private: Path,
    written: list[WrittenQuestion],
    earlier: EarlierQuestions,
    sources: Sources,
    withdrawn: Set[str],
) -> None:
    """Write the questions of this run, and the numbers and splits of all runs.

    Args:
        private: private folder of the work folder.
        written: questions of this run.
        earlier: questions of earlier runs.
        sources: sources.yaml.
        withdrawn: patients who have withdrawn, whose splits are deleted.
    """
    # Patients of earlier runs keep their split, even those without a question in this run.
    splits = dict(earlier.splits) | {question.case.item.patient: question.split for question in written}
    cases = [
        {
            "case": question.case.case,
            "pictures": question.case.item.pictures,
            "question": question.question,
            "options": question.choice.options,
            "right": question.choice.right,
            "task": question.case.task,
            "department": question.case.department,
            "granularity": question.case.granularity,
            "modality": question.case.modality,
            "box": question.case.item.box,
        }
        for question in written
    ]

    document = {
        "drawn_with": _drawn_with(sources),
        "splits": {patient: name for patient, name in splits.items() if patient not in withdrawn},
        "indices": dict(earlier.indices) | {question.case.case: question.index for question in written},
        "cases": cases,
        "tasks": sources.tasks,
        "departments": sources.departments,
        "overlay": sources.overlay.model_dump(),
        "seed": sources.seed,
    }
    replace_file(private / QUESTIONS_FILE, json.dumps(document, ensure_ascii=False).encode())


def _drawn_with(sources: Sources) -> list[float]:
    """Return the settings that determine the splits."""
    return [sources.seed, sources.validation]


class OptionPools:
    """Labels that can be options of a case.

    These are the labels of its cell; at image level, only those of its dataset.
    """

    def __init__(self, cases: Iterable[Candidate], table: LabelTable) -> None:
        self.table = table
        self._names: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for case in cases:
            self._names[self._scope(case)].update(case.answers)

    @staticmethod
    def _scope(case: Candidate) -> tuple[str, ...]:
        return (case.item.dataset if case.granularity == IMAGE_LEVEL else "", *case.cell)

    def wrong_options(self, case: Candidate) -> list[str]:
        """Return every label that can be a wrong option of this case, sorted."""
        return sorted(name for name in self._names[self._scope(case)] if self._is_wrong(name, case))

    def _is_wrong(self, name: str, case: Candidate) -> bool:
        """Return True if a label is certainly wrong and is not related to any answer.

        At region level, other labels of the image may be wrong options: they distinguish a model
        that uses the marking from one that ignores it.
        """
        is_image = case.granularity == IMAGE_LEVEL
        excluded_labels = (*case.answers, *(case.present if is_image else case.overlapping))
        if name in case.unsure or any(self.table.are_related(name, label) for label in excluded_labels):
            return False
        if is_image:
            return self.table.can_be_shown(name, case.modality, case.regions)
        return not any(_is_word_subset(name, label) for label in case.answers)


def _is_word_subset(first_label: str, second_label: str) -> bool:
    """Return True if one label contains all words of the other.

    Both are then correct: a marked "kidney tumour" lies in a "kidney".
    """
    first_words, second_words = set(normalize_term(first_label).split()), set(normalize_term(second_label).split())
    return first_words <= second_words or second_words <= first_words


class OptionDrawer:
    """Draws the options of cases.

    The positions of the correct options are balanced within each split and number of options."""

    def __init__(self, sources: Sources, pools: OptionPools, frequency: Counter[tuple[Cell, str]]) -> None:
        """Create the drawer.

        Args:
            sources: sources.yaml.
            pools: possible wrong options.
            frequency: how often each label is an answer in its cell. Wrong options are drawn in
                proportion to it, so that frequent answers are also frequent wrong options and text
                alone gives nothing away.
        """
        self.sources, self.pools, self.frequency = sources, pools, frequency
        self.position_counts: Counter[tuple[str, bool, int, int]] = Counter()

    def draw(self, case: Candidate, split: str) -> OptionSet | None:
        """Draw the options of a case.

        At region level, one wrong option is another label of the image if possible; otherwise the
        question could be answered without the marking.

        Args:
            case: the case; its answers leave room for a wrong option.
            split: its split.

        Returns:
            The options; None if the pool is too small.
        """
        rng = random.Random(f"options {case.order}")
        min_options, max_options = self.sources.options
        answers = list(case.answers)
        wrong_count = max(rng.randint(min_options, max_options), len(answers) + 1) - len(answers)
        wrong: list[str] = []
        # Weighted sampling without replacement (Efraimidis and Spirakis 2006): sort by u ** (1 /
        # weight) for a uniform u, largest first.
        weights = {name: max(self.frequency[case.cell, name], 1) for name in self.pools.wrong_options(case)}

        sort_keys = {name: rng.random() ** (1 / weight) for name, weight in weights.items()}
        names = sorted(sort_keys, key=lambda name: -sort_keys[name])

        # A wrong option that is on the image but not marked forces a model to use the marking.
        on_image = [name for name in names if case.granularity != IMAGE_LEVEL and name in case.present]
        for name in sorted(names, key=lambda name: name not in on_image[:1]):
            if len(wrong) < wrong_count and not any(self.pools.table.are_related(name, chosen) for chosen in wrong):
                wrong.append(name)

        if not wrong or len(wrong) + len(answers) < min_options:
            return None
        return self._place_options(case, answers, wrong, split, rng)

    def _place_options(
        self, case: Candidate, answers: list[str], wrong: list[str], split: str, rng: random.Random
    ) -> OptionSet:
        """Shuffle the options, and balance the positions of the correct ones."""
        size = len(answers) + len(wrong)
        positions = list(range(size))
        rng.shuffle(positions)

        # The sort is stable, so the order of equally used positions stays random.
        positions.sort(key=lambda at: self.position_counts[split, case.is_multiple, size, at])
        right = positions[: len(answers)]
        self.count_positions(case, split, size, right)
        rng.shuffle(answers)
        rng.shuffle(wrong)

        options = [""] * size
        for at, name in zip([*right, *sorted(set(range(size)) - set(right))], [*answers, *wrong], strict=True):
            options[at] = name
        return OptionSet(tuple(options), tuple(sorted(right)))

    def count_positions(self, case: Candidate, split: str, size: int, right: Iterable[int]) -> None:
        """Count the positions of a question's correct options, for `_place_options` to balance."""
        self.position_counts.update((split, case.is_multiple, size, at) for at in right)

    def is_still_valid(self, case: Candidate, choice: OptionSet) -> bool:
        """Return True if the options of an earlier run are still valid.

        The answers must be the same, and all wrong options must still be possible.
        """
        right = {choice.options[at] for at in choice.right}
        wrong = set(choice.options) - right
        min_options, max_options = self.sources.options
        is_right = right == set(case.answers) and wrong and wrong <= set(self.pools.wrong_options(case))
        return bool(is_right and min_options <= len(choice.options) <= max_options)
