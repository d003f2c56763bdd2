"""Quality report before publishing a benchmark: scores of answerers that never see an image, scored by the benchmark's own metrics, what
repeats, and for MediConfusion's pairs balance, and how small a difference between two models they can tell.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from curation.report.blind_baseline import BlindAsking, BlindModel, score_blind
from dataset_builders.case_groups import find_split_overlaps, format_overlaps
from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.images.picture import make_picture
from eval_harness.derive.metrics import OVERALL_METRICS
from eval_harness.derive.scoring import compute_scores
from eval_harness.scores.clustered import ClusterSizes
from eval_harness.scores.grading import image_clusters, question_image_ids

PAIRS_FAMILY = "mediconfusion"
DISCORDANT_SHARES = (0.15, 0.3)
"""Share of pairs on which exactly one of two models is correct: typical values, for the smallest detectable difference."""


@dataclass(frozen=True)
class PairQuality:
    """Measures that only MediConfusion's pairs have."""

    pairs: int
    components: int
    """groups of pairs that share images or patients"""
    largest_component: int
    effective_pairs: float
    """number of independent pairs that they are worth if pairs of one group agree (Kish)"""
    image_1_is_a: int
    position_p: float
    smallest_difference: dict[str, float | None]
    sim_med: list[float]
    sim_gen: list[float]


@dataclass(frozen=True)
class QualityReport:
    """The report's numbers.

    `rules`: answerer that never sees an image -> metric -> value, low, high (95%), chance, verdict.
    `perfect`: the headline's value and so on of a model that answers everything correctly.
    """

    name: str
    family: str
    split: str
    questions: int
    images: int
    images_seen: int
    rules: dict[str, dict[str, dict[str, Any]]]
    perfect: dict[str, Any]
    repeated_questions: list[list[str]]
    """Questions on one image with the same text and options."""
    same_images: list[list[str]]
    """Images of this split with the same pixels."""
    images_in_splits: dict[str, list[str]]
    """Image -> splits that hold its pixels, of images that several splits hold."""
    of_pairs: PairQuality | None = None
    blind_model: BlindModel | None = None

    def warnings(self) -> list[str]:
        """Warnings, as text."""
        metric = blind_metrics(self.family)[-1]
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
        pairs = self.of_pairs
        if pairs and pairs.position_p < 0.05:
            found.append(
                f"Option A is right for the first image in {pairs.image_1_is_a} of {pairs.pairs} pairs (p = {pairs.position_p:.3f})."
            )
        if self.same_images:
            found.append(f"{len(self.same_images)} groups of images are the same picture.")
        if self.images_in_splits:
            found.append(f"Images in more than one split: {format_overlaps(self.images_in_splits)}.")
        if self.perfect["verdict"] != "better":
            found.append(
                f"A perfect model cannot be told from guessing: 95% interval {self.perfect['low']:.1f} to 100 "
                f"(chance {self.perfect['chance']:.1f}). More questions on other images and patients are needed."
            )
        return found


def blind_metrics(family: str) -> tuple[str, ...]:
    """The metrics that the report gives of answerers without images; the last one decides whether the text gives answers away."""
    return (OVERALL_METRICS[family], "individual_accuracy") if family == PAIRS_FAMILY else (OVERALL_METRICS[family],)


def measure_quality(data: str | Path, blind: BlindAsking | None = None) -> QualityReport:
    """Measure the first split of a dataset (a built folder, or one on the Hub) whose answers are there; its images are compared unless it
    was built without them. blind: a language model to ask. Raises BadInput for a dataset without answers."""
    repository = open_repository(data)
    for split in repository.splits:
        questions = repository.questions(split)
        questions = questions[questions["answer"].map(len) > 0]
        if len(questions):
            break
    else:
        raise BadInput(f"{data}: no split has answers, so nothing can be said of what the text gives away.")
    family = repository.family

    def scored(choices: list[Any]) -> dict[str, dict[str, Any]]:
        answers = {"question_id": questions["question_id"], "choice": choices, "sample": 0, "status": "answered"}
        scores = compute_scores(family, questions, pd.DataFrame(answers)).scores
        return {metric: scores[metric].model_dump() for metric in blind_metrics(family)}

    pictures = {part: dict(_image_digests(repository, part)) for part in repository.splits if repository.has_images}
    shared = find_split_overlaps({part: digests.values() for part, digests in pictures.items()})
    seen = pictures.get(split, {})
    same: dict[str, list[str]] = defaultdict(list)
    for name, digest in seen.items():
        same[digest].append(name)
    text = questions["question"].str.casefold().str.split().str.join(" ")
    options = questions["options"].map(lambda shown: tuple(sorted(map(str.casefold, shown))))
    repeated = questions["question_id"].groupby([questions["case_id"], questions["image_id"], text, options]).agg(list)
    return QualityReport(
        name=repository.name,
        family=family,
        split=split,
        questions=len(questions),
        images=question_image_ids(questions).nunique(),
        images_seen=len(seen),
        rules={rule: scored([(at,) for at in answer(questions)]) for rule, answer in BLIND_RULES.items()},
        perfect=scored([tuple(answer) for answer in questions["answer"]])[OVERALL_METRICS[family]],
        repeated_questions=[group for group in repeated if len(group) > 1],
        same_images=[group for group in same.values() if len(group) > 1],
        images_in_splits={name: shared[digest] for name, digest in seen.items() if digest in shared},
        of_pairs=_measure_pairs(questions) if family == PAIRS_FAMILY else None,
        blind_model=score_blind(family, questions, blind) if blind else None,
    )


def _image_digests(repository: Repository, split: str) -> Iterator[tuple[str, str]]:
    """The name of each image of a split, with the digest of its pixels."""
    for case in repository.cases(split):
        for name, data in case.images.items():
            yield name, make_picture(data).digest()


def _option_rule(pick: Callable[[list[str]], int]) -> Callable[[pd.DataFrame], list[int]]:
    """A rule that looks at the options alone."""
    return lambda questions: [pick(list(options)) for options in questions["options"]]


def _most_frequent_answer(questions: pd.DataFrame) -> list[int]:
    """The option that is most often right where the same text stands in other cases (no such text: the first option)."""
    right: dict[str, Counter[str]] = defaultdict(Counter)
    in_case: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = questions[["case_id", "question", "options", "answer"]].to_dict("records")
    for row in rows:
        texts = [row["options"][at] for at in row["answer"]]
        right[row["question"]].update(texts)
        in_case[row["case_id"], row["question"]].update(texts)
    chosen = []
    for row in rows:
        others = right[row["question"]] - in_case[row["case_id"], row["question"]]
        counts = [others[option] for option in row["options"]]
        chosen.append(counts.index(max(counts)))
    return chosen


BLIND_RULES: dict[str, Callable[[pd.DataFrame], list[int]]] = {
    "always the first option": _option_rule(lambda options: 0),
    "always the last option": _option_rule(lambda options: len(options) - 1),
    "the longest option": _option_rule(lambda options: max(range(len(options)), key=lambda at: len(options[at]))),
    "the shortest option": _option_rule(lambda options: min(range(len(options)), key=lambda at: len(options[at]))),
    "what is most often right for this text elsewhere in the set": _most_frequent_answer,
}
"""Answerers that never see an image: questions -> the option that each is answered with."""


def _measure_pairs(questions: pd.DataFrame) -> PairQuality:
    """questions: two rows for each pair, which differ in image and answer."""
    is_first = ~questions["case_id"].duplicated().to_numpy()
    first = questions[is_first]
    components = np.unique(image_clusters(questions)[is_first], return_counts=True)[1]
    pairs, effective = len(first), ClusterSizes.from_sizes(components).effective_clusters
    image_1_is_a = sum(tuple(answer) == (0,) for answer in first["answer"])
    return PairQuality(
        pairs=pairs,
        components=len(components),
        largest_component=int(components.max()),
        effective_pairs=effective,
        image_1_is_a=image_1_is_a,
        position_p=float(binomtest(image_1_is_a, pairs).pvalue),
        smallest_difference={f"{share:.0%}": smallest_difference(effective, share) for share in DISCORDANT_SHARES},
        sim_med=list(map(float, first["sim_med"])),
        sim_gen=list(map(float, first["sim_gen"])),
    )


def smallest_difference(pairs: float, discordant: float) -> float | None:
    """The smallest difference in set accuracy (points) between two models that a paired test on so many pairs finds
    at the level of 5 % with a power of 80 %.

    discordant: share of pairs that exactly one of the two gets right. Connor's formula for McNemar's test, n = (z_a
    sqrt(p) + z_b sqrt(p - d^2))^2 / d^2, solved for d, for independent pairs: give the effective number of pairs that
    share images. None if no difference is detectable: it would have to be larger than the discordant share itself.
    """
    z_a, z_b = norm.ppf(1 - 0.05 / 2), norm.ppf(0.8)
    # z_b sqrt(p - d^2) = d sqrt(n) - z_a sqrt(p), squared: a quadratic in d.
    a, b, c = pairs + z_b**2, -2 * z_a * math.sqrt(discordant * pairs), (z_a**2 - z_b**2) * discordant
    inside = b * b - 4 * a * c
    found = (-b + math.sqrt(inside)) / (2 * a) if inside >= 0 else math.inf
    return 100 * found if found <= discordant else None
