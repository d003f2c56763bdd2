"""What to look at before publishing a benchmark in the MediConfusion format: what a blind model gets, give-aways in the
options, repeated images and questions, balance, and how small a difference between two models it can tell. Reads an
exported (or the official) folder; writes one HTML page.

See also: the plots (`quality_page.py`); built datasets of any format (`text_quality.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from curation.report.blind_baseline import BlindAsking, BlindModel, ask_blind
from curation.writing.question_reading import LENGTH_GAP, LENGTH_RATIO
from dataset_builders.benchmarks.mediconfusion.reader import read
from dataset_builders.case_groups import sharing_images
from dataset_builders.images.lookup import ImageError, ImageFolders
from dataset_builders.schema import Case

OFTEN = 5
"""An image in more pairs than this is listed: what a model thinks of it weighs as much."""
ALIKE = 0.8
"""Share of words that two questions share (Jaccard, with options) from which they are called near-duplicates."""
NEAR_BITS = 6
DISCORDANT = (0.15, 0.3)
"""Share of pairs on which exactly one of two models is right: usual values, for the smallest difference that can be
told."""


@dataclass(frozen=True)
class Blind:
    """What an answerer that never sees the image gets, in percent."""

    rule: str
    set_accuracy: float
    individual_accuracy: float


@dataclass(frozen=True)
class Quality:
    """The report's numbers; see `check` for each."""

    pairs: int
    images: int
    components: int
    largest_component: int
    blind: list[Blind]
    image_1_is_a: int
    position_p: float
    uneven_options: list[str]
    repeated_questions: list[list[str]]
    alike_questions: list[tuple[str, str, float]]
    same_images: list[list[str]]
    alike_images: list[tuple[str, str, int]]
    images_seen: int
    unreadable_images: dict[str, str]
    """Image -> why it cannot be opened: a build refuses it."""
    often: dict[str, int]
    categories: dict[str, int]
    smallest_difference: dict[str, float | None]
    smallest_difference_groups: dict[str, float | None]
    """The same if each component said no more than one pair: the worst that shared images can do."""
    sim_med: list[float]
    sim_gen: list[float]
    blind_model: BlindModel | None = None

    def warnings(self) -> list[str]:
        """What deserves a look, in words."""
        found = []
        if self.position_p < 0.05:
            found.append(
                f"Option A is right for the first image in {self.image_1_is_a} of {self.pairs} pairs (p = {self.position_p:.3f})."
            )
        if self.uneven_options:
            found.append(f"In {len(self.uneven_options)} pairs one option is much longer than the other.")
        if self.repeated_questions:
            found.append(
                f"{sum(map(len, self.repeated_questions))} pairs share question and options with another pair."
            )
        found += image_warnings(self.unreadable_images, self.same_images, self.alike_images)
        if self.often:
            found.append(
                f"{len(self.often)} images are used in more than {OFTEN} pairs (at most {max(self.often.values())})."
            )
        if self.blind_model is not None:
            individual = self.blind_model.scores["individual_accuracy"]
            if individual["verdict"] == "better":
                found.append(
                    f"{self.blind_model.model} gets {individual['value']:.1f}% of the questions right without their images "
                    f"(95%: {individual['low']:.1f} to {individual['high']:.1f}): the text gives answers away."
                )
            unread = sum(count for status, count in self.blind_model.statuses.items() if status != "answered")
            if unread:
                found.append(
                    f"{self.blind_model.model} gave no answer to {unread} questions without their images; they count as wrong."
                )
        rare = [name for name, count in self.categories.items() if count < 20]
        if rare:
            found.append(f"Categories with fewer than 20 images say little by themselves: {', '.join(rare)}.")
        return found


def check(source: Path, images: tuple[Path, ...] = (), blind: BlindAsking | None = None) -> Quality:
    """Read a folder in the MediConfusion layout and measure it.

    images: where its images are, beside source/images; without any, the checks on pixels are left out and `images_seen` is
    0. blind: a language model to ask. Raises BadInput for a folder that `medprobe build mediconfusion` would refuse, too.
    """
    folders = [folder for folder in (*images, source / "images") if folder.is_dir() or folder in images]
    cases = read(source, ImageFolders(folders) if folders else None).cases["test"]
    use = Counter(image.image_id for case in cases for image in case.images)
    sizes = sorted(map(len, sharing_images(cases)), reverse=True)
    image_1_is_a = sum(case.questions[0].answer == (0,) for case in cases)
    there = {image.image_id: image.read for case in cases for image in case.images if image.read is not None}
    same, alike, unreadable = alike_images(there)
    labels = Counter(category for case in cases for question in case.questions for category in question.categories)
    return Quality(
        pairs=len(cases),
        images=len(use),
        components=len(sizes),
        largest_component=sizes[0],
        blind=[_blind(cases, rule) for rule in ("always A", "always B", "the longer option", "the shorter option")],
        image_1_is_a=image_1_is_a,
        position_p=float(binomtest(image_1_is_a, len(cases)).pvalue),
        uneven_options=[case.case_id for case in cases if _uneven(case.questions[0].options)],
        repeated_questions=_repeated(cases),
        alike_questions=_questions_alike(cases),
        same_images=same,
        alike_images=alike,
        images_seen=len(there),
        unreadable_images=unreadable,
        often={image: count for image, count in use.most_common() if count > OFTEN},
        categories=dict(labels.most_common()),
        smallest_difference={f"{share:.0%}": smallest_difference(len(cases), share) for share in DISCORDANT},
        smallest_difference_groups={f"{share:.0%}": smallest_difference(len(sizes), share) for share in DISCORDANT},
        sim_med=[float(case.questions[0].extra["sim_med"]) for case in cases],
        sim_gen=[float(case.questions[0].extra["sim_gen"]) for case in cases],
        blind_model=_ask(cases, blind) if blind else None,
    )


FORMAT = "mediconfusion"
SHOWN = ("set_accuracy", "individual_accuracy", "confusion", "invalid", "share_A")
"""The blind model's numbers that the report shows."""


def _ask(cases: list[Case], blind: BlindAsking) -> BlindModel:
    questions = pd.DataFrame([asdict(question) for case in cases for question in case.questions])
    found = ask_blind(FORMAT, questions, blind.model, blind.journal, blind.asking)
    return replace(found, scores={name: found.scores[name] for name in SHOWN if name in found.scores})


def _blind(cases: list[Case], rule: str) -> Blind:
    """The score of a rule that looks at the options only. Both images of a pair share them, so it says the same
    twice."""
    right = []
    for case in cases:
        lengths = [len(option) for option in case.questions[0].options]
        longer = int(lengths[1] > lengths[0])
        says = {"always A": 0, "always B": 1, "the longer option": longer, "the shorter option": 1 - longer}[rule]
        right.append([question.answer == (says,) for question in case.questions])
    return Blind(rule, 100 * float(np.mean([all(pair) for pair in right])), 100 * float(np.mean(right)))


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


def image_warnings(
    unreadable: Mapping[str, str], same: list[list[str]], alike: list[tuple[str, str, int]]
) -> list[str]:
    """What `alike_images` found, in words."""
    found = []
    if unreadable:
        name, why = next(iter(unreadable.items()))
        found.append(f"{len(unreadable)} images cannot be opened ({name}: {why}).")
    if same or alike:
        found.append(f"{len(same)} groups of images are the same file, {len(alike)} pairs of images look alike.")
    return found


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
