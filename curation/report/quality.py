"""What to look at before publishing a benchmark: what answerers get that never see an image, scored by the benchmark's own metrics, what
repeats, and for MediConfusion's pairs give-aways in the options, balance, and how small a difference between two models they can tell.

Reads a built dataset of any format, or an exported (or the official) folder in MediConfusion's layout.
See also: the page (`quality_page.py`), language models without images (`blind_baseline.py`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from curation.report.blind_baseline import BlindAsking, BlindModel, ask_blind
from curation.writing.question_reading import LENGTH_GAP, LENGTH_RATIO
from dataset_builders.benchmarks.mediconfusion.reader import read
from dataset_builders.case_groups import sharing_images
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.lookup import ImageError, ImageFolders
from dataset_builders.schema import Case
from eval_harness.derive.metrics import HEADLINE
from eval_harness.derive.scoring import score
from eval_harness.scores.grading import shown_images

PAIRS = "mediconfusion"
OFTEN = 5
"""An image in so many times more questions than is usual is listed: what a model thinks of it weighs as much."""
ALIKE = 0.8
"""Share of words that two questions share (Jaccard, with options) from which they are called near-duplicates."""
NEAR_BITS = 6
DISCORDANT = (0.15, 0.3)
"""Share of pairs on which exactly one of two models is right: usual values, for the smallest difference that can be told."""
Chosen = dict[str, tuple[int, ...]]
"""Question id -> what a rule answers."""


@dataclass(frozen=True)
class PairQuality:
    """What is measured of MediConfusion's pairs alone."""

    pairs: int
    components: int
    """groups of pairs that share images"""
    largest_component: int
    image_1_is_a: int
    position_p: float
    uneven_options: list[str]
    repeated_pairs: list[list[str]]
    alike_questions: list[tuple[str, str, float]]
    categories: dict[str, int]
    smallest_difference: dict[str, float | None]
    smallest_difference_groups: dict[str, float | None]
    """The same if each component said no more than one pair: the worst that shared images can do."""
    sim_med: list[float]
    sim_gen: list[float]

    def warnings(self) -> list[str]:
        """What deserves a look, in words."""
        found = []
        if self.position_p < 0.05:
            found.append(
                f"Option A is right for the first image in {self.image_1_is_a} of {self.pairs} pairs (p = {self.position_p:.3f})."
            )
        if self.uneven_options:
            found.append(f"In {len(self.uneven_options)} pairs one option is much longer than the other.")
        if self.repeated_pairs:
            found.append(f"{sum(map(len, self.repeated_pairs))} pairs share question and options with another pair.")
        rare = [name for name, count in self.categories.items() if count < 20]
        if rare:
            found.append(f"Categories with fewer than 20 images say little by themselves: {', '.join(rare)}.")
        return found


@dataclass(frozen=True)
class Quality:
    """The report's numbers. `rules`: answerer that never sees an image -> metric -> value, low, high (95%), chance, verdict."""

    name: str
    family: str
    split: str
    questions: int
    images: int
    images_seen: int
    rules: dict[str, dict[str, dict[str, Any]]]
    repeated_questions: list[list[str]]
    """Questions on one image with the same text and options."""
    same_images: list[list[str]]
    alike_images: list[tuple[str, str, int]]
    unreadable_images: dict[str, str]
    """Image -> why it cannot be opened: a build refuses it."""
    often: dict[str, int]
    of_pairs: PairQuality | None = None
    blind_model: BlindModel | None = None

    def warnings(self) -> list[str]:
        """What deserves a look, in words."""
        metric = metrics_of(self.family)[-1]
        given = {rule: found[metric] for rule, found in self.rules.items()}
        blind = self.blind_model
        given |= {blind.model: blind.scores[metric]} if blind else {}
        found = [
            f"{who} gets {numbers['value']:.1f} % ({metric.replace('_', ' ')}) without the images (95%: {numbers['low']:.1f} to "
            f"{numbers['high']:.1f}; chance {numbers['chance']:.1f}): the text gives answers away."
            for who, numbers in given.items()
            if numbers["verdict"] == "better"
        ]
        unread = sum(count for status, count in blind.statuses.items() if status != "answered") if blind else 0
        if blind and unread:
            found.append(
                f"{blind.model} gave no answer to {unread} questions without their images; "
                + ("it has no score." if blind.scores[metric]["nonresponse"] is not None else "they count as wrong.")
            )
        if self.repeated_questions:
            found.append(f"{len(self.repeated_questions)} questions are asked more than once of the same image.")
        found += self.of_pairs.warnings() if self.of_pairs else []
        if self.unreadable_images:
            name, why = next(iter(self.unreadable_images.items()))
            found.append(f"{len(self.unreadable_images)} images cannot be opened ({name}: {why}).")
        if self.same_images or self.alike_images:
            found.append(
                f"{len(self.same_images)} groups of images are the same file, {len(self.alike_images)} pairs of images look alike."
            )
        if self.often:
            found.append(
                f"{len(self.often)} images are used far more often than others (at most {max(self.often.values())} times)."
            )
        return found


def metrics_of(family: str) -> tuple[str, ...]:
    """The metrics that the report gives of answerers without images; the last one decides whether the text gives answers away."""
    return (HEADLINE[family], "individual_accuracy") if family == PAIRS else (HEADLINE[family],)


def check(source: Path, images: tuple[Path, ...] = (), blind: BlindAsking | None = None) -> Quality:
    """Measure the first split of a built dataset whose answers are there, or a folder in the MediConfusion layout.

    images: where the images of such a folder are, beside source/images; without any, the checks on pixels are left out and `images_seen`
    is 0. blind: a language model to ask. Raises BadInput for a folder that `medprobe build mediconfusion` would refuse, too, and for a
    dataset without answers.
    """
    if (source / "questions_text").is_dir():
        repository = open_repository(source)
        for split in repository.splits:
            questions = repository.questions(split)
            questions = questions[questions["answer"].map(len) > 0]
            if len(questions):
                break
        else:
            raise BadInput(f"{source}: no split has answers, so nothing can be said of what the text gives away.")
        stored = {image: data for case in repository.cases(split) for image, data in case.images.items()}
        there = {image: partial(bytes, data) for image, data in stored.items()}
        return _measured(repository.name, repository.family, split, questions, there, None, blind)
    folders = [folder for folder in (*images, source / "images") if folder.is_dir() or folder in images]
    cases = read(source, ImageFolders(folders) if folders else None).cases["test"]
    questions = pd.DataFrame([asdict(question) for case in cases for question in case.questions])
    readers = {image.image_id: image.read for case in cases for image in case.images if image.read is not None}
    return _measured(source.resolve().name, PAIRS, "test", questions, readers, _pairs(cases), blind)


def _measured(
    name: str, family: str, split: str, questions: pd.DataFrame, there: Mapping[str, Callable[[], bytes]], pairs: PairQuality | None,
    blind: BlindAsking | None,
) -> Quality:  # fmt: skip
    rules = {}
    for rule, answer in RULES.items():
        scores = score(family, questions, _answers(answer(questions))).scores
        rules[rule] = {metric: scores[metric].model_dump() for metric in metrics_of(family)}
    same, alike, unreadable = alike_images(there)
    text = questions["question"].str.casefold().str.split().str.join(" ")
    options = questions["options"].map(lambda shown: tuple(sorted(map(str.casefold, shown))))
    repeated = questions["question_id"].groupby([questions["case_id"], questions["image_id"], text, options]).agg(list)
    shown = shown_images(questions)
    use = shown.value_counts()
    return Quality(
        name=name,
        family=family,
        split=split,
        questions=len(questions),
        images=int(shown.nunique()),
        images_seen=len(there),
        rules=rules,
        repeated_questions=[group for group in repeated if len(group) > 1],
        same_images=same,
        alike_images=alike,
        unreadable_images=unreadable,
        often={str(image): int(count) for image, count in use.items() if count > OFTEN * use.median()},
        of_pairs=pairs,
        blind_model=ask_blind(family, questions, blind.model, blind.journal, blind.asking) if blind else None,
    )


def _answers(chosen: Chosen) -> pd.DataFrame:
    return pd.DataFrame(
        {"question_id": list(chosen), "sample": 0, "choice": list(chosen.values()), "status": "answered"}
    )


def _each(pick: Callable[[list[str]], int]) -> Callable[[pd.DataFrame], Chosen]:
    """A rule that looks at the options alone."""

    def answers(questions: pd.DataFrame) -> Chosen:
        return {
            str(name): (pick(list(options)),)
            for name, options in zip(questions["question_id"], questions["options"], strict=True)
        }

    return answers


def _most_often(questions: pd.DataFrame) -> Chosen:
    """The option that is most often right where the same text stands in other cases (no such text: the first option)."""
    right: dict[str, Counter[str]] = defaultdict(Counter)
    in_case: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = questions[["question_id", "case_id", "question", "options", "answer"]].to_dict("records")
    for row in rows:
        texts = [row["options"][at] for at in row["answer"]]
        right[row["question"]].update(texts)
        in_case[row["case_id"], row["question"]].update(texts)
    chosen: Chosen = {}
    for row in rows:
        others = right[row["question"]] - in_case[row["case_id"], row["question"]]
        chosen[str(row["question_id"])] = (
            max(range(len(row["options"])), key=lambda at: (others[row["options"][at]], -at)),
        )
    return chosen


RULES: dict[str, Callable[[pd.DataFrame], Chosen]] = {
    "always the first option": _each(lambda options: 0),
    "always the last option": _each(lambda options: len(options) - 1),
    "the longest option": _each(lambda options: max(range(len(options)), key=lambda at: len(options[at]))),
    "the shortest option": _each(lambda options: min(range(len(options)), key=lambda at: len(options[at]))),
    "what is most often right for this text elsewhere in the set": _most_often,
}
"""Answerers that never see an image."""


def _pairs(cases: list[Case]) -> PairQuality:
    sizes = sorted(map(len, sharing_images(cases)), reverse=True)
    image_1_is_a = sum(case.questions[0].answer == (0,) for case in cases)
    labels = Counter(category for case in cases for question in case.questions for category in question.categories)
    return PairQuality(
        pairs=len(cases),
        components=len(sizes),
        largest_component=sizes[0],
        image_1_is_a=image_1_is_a,
        position_p=float(binomtest(image_1_is_a, len(cases)).pvalue),
        uneven_options=[case.case_id for case in cases if _uneven(case.questions[0].options)],
        repeated_pairs=_repeated(cases),
        alike_questions=_questions_alike(cases),
        categories=dict(labels.most_common()),
        smallest_difference={f"{share:.0%}": smallest_difference(len(cases), share) for share in DISCORDANT},
        smallest_difference_groups={f"{share:.0%}": smallest_difference(len(sizes), share) for share in DISCORDANT},
        sim_med=[float(case.questions[0].extra["sim_med"]) for case in cases],
        sim_gen=[float(case.questions[0].extra["sim_gen"]) for case in cases],
    )


def _uneven(options: tuple[str, ...]) -> bool:
    short, long = sorted(map(len, options))
    return long > LENGTH_RATIO * short and long - short > LENGTH_GAP


def _words(case: Case) -> frozenset[str]:
    question = case.questions[0]
    return frozenset(" ".join((question.question, *question.options)).casefold().split())


def _repeated(cases: list[Case]) -> list[list[str]]:
    """Groups of pairs whose question and options read the same (options in any order)."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for case in cases:
        question = case.questions[0]
        key = (
            " ".join(question.question.casefold().split()),
            *sorted(option.casefold() for option in question.options),
        )
        groups.setdefault(key, []).append(case.case_id)
    return [group for group in groups.values() if len(group) > 1]


def _questions_alike(cases: list[Case]) -> list[tuple[str, str, float]]:
    """Pairs of pairs whose question and options share most words but do not read the same."""
    words = [_words(case) for case in cases]
    sizes = np.array([len(each) for each in words])
    found = []
    for first in range(len(cases)):
        # Sets whose sizes differ too much cannot be alike, whatever they hold.
        near = np.flatnonzero(np.minimum(sizes, sizes[first]) >= ALIKE * np.maximum(sizes, sizes[first]))
        for second in near[near > first]:
            share = len(words[first] & words[second]) / len(words[first] | words[second])
            if ALIKE <= share < 1:
                found.append((cases[first].case_id, cases[second].case_id, round(share, 3)))
    return found


def alike_images(
    images: Mapping[str, Callable[[], bytes]],
) -> tuple[list[list[str]], list[tuple[str, str, int]], dict[str, str]]:
    """Groups of images with the same bytes, pairs of others whose perceptual hashes are near (with the differing bits), and those that
    cannot be opened. images: id -> what reads its file."""
    import hashlib

    import imagehash

    from curation.images.image_index import open_rgb

    by_sha: dict[str, list[str]] = {}
    hashes: dict[str, int] = {}
    unreadable: dict[str, str] = {}
    for name, read_image in images.items():
        data = read_image()
        group = by_sha.setdefault(hashlib.sha256(data).hexdigest(), [])
        group.append(name)
        if len(group) == 1:
            try:
                hashes[name] = int(str(imagehash.phash(open_rgb(data))), 16)
            except ImageError as error:
                unreadable[name] = str(error)
    names = list(hashes)
    bits = np.array([hashes[name] for name in names], np.uint64)
    alike = []
    for at, name in enumerate(names):
        differing = np.bitwise_count(bits[at + 1 :] ^ bits[at])
        alike += [(name, names[at + 1 + far], int(differing[far])) for far in np.flatnonzero(differing <= NEAR_BITS)]
    return [group for group in by_sha.values() if len(group) > 1], alike, unreadable


def smallest_difference(pairs: int, discordant: float) -> float | None:
    """The smallest difference in set accuracy (points) between two models that a paired test on so many pairs finds
    at the level of 5 % with a power of 80 %.

    discordant: share of pairs that exactly one of the two gets right. Connor's formula for McNemar's test, n = (z_a
    sqrt(p) + z_b sqrt(p - d^2))^2 / d^2, solved for d; pairs are taken as independent, so shared images make the true
    value larger. None where no difference can be told: it would have to be larger than the discordant share itself.
    """
    z_a, z_b = norm.ppf(1 - 0.05 / 2), norm.ppf(0.8)
    # z_b sqrt(p - d^2) = d sqrt(n) - z_a sqrt(p), squared: a quadratic in d.
    a, b, c = pairs + z_b**2, -2 * z_a * math.sqrt(discordant * pairs), (z_a**2 - z_b**2) * discordant
    inside = b * b - 4 * a * c
    found = (-b + math.sqrt(inside)) / (2 * a) if inside >= 0 else math.inf
    return 100 * found if found <= discordant else None
