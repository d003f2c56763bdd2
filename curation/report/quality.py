"""Quality report of a benchmark before it is published.

It scores simple rules that answer without the images, by the benchmark's own metrics, and finds
repeated questions and images. For MediConfusion's pairs, it also measures the balance of the
correct options and the smallest difference between two models that the pairs can detect.
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
"""Typical shares of the pairs that exactly one of two models gets right, for which the smallest
detectable difference is computed.
"""


@dataclass(frozen=True)
class PairQuality:
    """Measures of MediConfusion's pairs."""

    pairs: int
    components: int
    """Number of clusters of pairs that share images or patients."""
    largest_component: int
    effective_pairs: float
    """Effective number of independent pairs (Kish), if all pairs of a cluster are answered
    alike.
    """
    image_1_is_a: int
    position_p: float
    smallest_difference: dict[str, float | None]
    sim_med: list[float]
    sim_gen: list[float]


@dataclass(frozen=True)
class QualityReport:
    """The numbers of the report.

    Attributes:
        rules: rule that answers without images -> metric -> value, low, high (95%), chance,
            verdict.
        perfect: the same fields for the headline metric of a model that answers everything
            correctly.
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
    """Groups of questions about one image with the same text and options."""
    same_images: list[list[str]]
    """Groups of images of this split with the same pixels."""
    images_in_splits: dict[str, list[str]]
    """Image -> splits that contain its pixels, for images in more than one split."""
    of_pairs: PairQuality | None = None
    blind_model: BlindModel | None = None

    def warnings(self) -> list[str]:
        """Return a sentence for each conspicuous result."""
        metric = blind_metrics(self.family)[-1]
        blind_scores = {rule: scores[metric] for rule, scores in self.rules.items()}
        blind = self.blind_model
        blind_scores |= {blind.model: blind.scores[metric]} if blind else {}
        warnings = [
            f"{answerer} gets {numbers['value']:.1f} % ({metric.replace('_', ' ')}) without the "
            "images (95%: "
            f"{numbers['low']:.1f} to {numbers['high']:.1f}; chance {numbers['chance']:.1f}): the "
            "text gives answers away."
            for answerer, numbers in blind_scores.items()
            if numbers["verdict"] == "better"
        ]
        unanswered = sum(count for status, count in blind.statuses.items() if status != "answered") if blind else 0
        if blind and unanswered:
            warnings.append(
                f"{blind.model} gave no answer to {unanswered} questions without their images; "
                + ("it has no score." if blind.scores[metric]["nonresponse"] is not None else "they count as wrong.")
            )
        if self.repeated_questions:
            warnings.append(
                f"{len(self.repeated_questions)} questions are asked more than once of the same image.",
            )
        pairs = self.of_pairs
        if pairs and pairs.position_p < 0.05:
            warnings.append(
                f"Option A is right for the first image in {pairs.image_1_is_a} of {pairs.pairs} "
                "pairs "
                f"(p = {pairs.position_p:.3f})."
            )
        if self.same_images:
            warnings.append(f"{len(self.same_images)} groups of images show the same picture.")
        if self.images_in_splits:
            warnings.append(
                f"Images in more than one split: {format_overlaps(self.images_in_splits)}.",
            )
        if self.perfect["verdict"] != "better":
            warnings.append(
                "A perfect model cannot be told from guessing: 95% interval "
                f"{self.perfect['low']:.1f} to 100 "
                f"(chance {self.perfect['chance']:.1f}). More questions on other images and "
                "patients are needed."
            )
        return warnings


def blind_metrics(family: str) -> tuple[str, ...]:
    """List the metrics that are reported for answers without images.

    Args:
        family: benchmark family.

    Returns:
        Names of metrics; the last one is used to decide whether the text gives answers away.
    """
    return (OVERALL_METRICS[family], "individual_accuracy") if family == PAIRS_FAMILY else (OVERALL_METRICS[family],)


def measure_quality(data: str | Path, blind: BlindAsking | None = None) -> QualityReport:
    """Measure the quality of a dataset, on its first split that has answers.

    Args:
        data: folder of a built dataset, or its id on the Hub. Images are compared unless it was
            built without them.
        blind: a language model to ask without images.

    Returns:
        The report.

    Raises:
        BadInput: no split has answers.
    """
    repository = open_repository(data)
    # A test split may be published without its answers.
    for split in repository.splits:
        questions = repository.questions(split)
        questions = questions[questions["answer"].map(len) > 0]
        if len(questions):
            break
    else:
        raise BadInput(
            f"{data}: no split has answers, which are needed to measure what the text gives away.",
        )
    family = repository.family

    def score_choices(choices: list[Any]) -> dict[str, dict[str, Any]]:
        answers = {
            "question_id": questions["question_id"],
            "choice": choices,
            "sample": 0,
            "status": "answered",
        }
        scores = compute_scores(family, questions, pd.DataFrame(answers)).scores
        return {metric: scores[metric].model_dump() for metric in blind_metrics(family)}

    split_digests = {
        part: dict(_image_digests(repository, part)) for part in repository.splits if repository.has_images
    }
    shared_digests = find_split_overlaps(
        {part: digests.values() for part, digests in split_digests.items()},
    )
    digests = split_digests.get(split, {})
    same_images: dict[str, list[str]] = defaultdict(list)
    for name, digest in digests.items():
        same_images[digest].append(name)

    # Questions that differ only in letter case, spacing or the order of options count as the same.
    text = questions["question"].str.casefold().str.split().str.join(" ")
    options = questions["options"].map(
        lambda row_options: tuple(sorted(map(str.casefold, row_options))),
    )
    repeated = questions["question_id"].groupby([questions["case_id"], questions["image_id"], text, options]).agg(list)
    return QualityReport(
        name=repository.name,
        family=family,
        split=split,
        questions=len(questions),
        images=question_image_ids(questions).nunique(),
        images_seen=len(digests),
        rules={rule: score_choices([(index,) for index in answer(questions)]) for rule, answer in BLIND_RULES.items()},
        perfect=score_choices([tuple(answer) for answer in questions["answer"]])[OVERALL_METRICS[family]],
        repeated_questions=[ids for ids in repeated if len(ids) > 1],
        same_images=[names for names in same_images.values() if len(names) > 1],
        images_in_splits={name: shared_digests[digest] for name, digest in digests.items() if digest in shared_digests},
        of_pairs=_measure_pairs(questions) if family == PAIRS_FAMILY else None,
        blind_model=score_blind(family, questions, blind) if blind else None,
    )


def _image_digests(repository: Repository, split: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each image of a split and the digest of its pixels."""
    for case in repository.cases(split):
        for name, encoded in case.images.items():
            yield name, make_picture(encoded).digest()


def _option_rule(pick: Callable[[list[str]], int]) -> Callable[[pd.DataFrame], list[int]]:
    """Make a rule that answers each question by its options alone."""
    return lambda questions: [pick(list(options)) for options in questions["options"]]


def _most_frequent_answer(questions: pd.DataFrame) -> list[int]:
    """Answer with the option that is most often correct for the same text in other cases.

    If no other case has the text, the first option is chosen.
    """
    correct: dict[str, Counter[str]] = defaultdict(Counter)
    case_correct: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = questions[["case_id", "question", "options", "answer"]].to_dict("records")
    for row in rows:
        texts = [row["options"][index] for index in row["answer"]]
        correct[row["question"]].update(texts)
        case_correct[row["case_id"], row["question"]].update(texts)
    choices = []
    for row in rows:
        # Leave out the question's own case, since otherwise its own answer would count.
        elsewhere = correct[row["question"]] - case_correct[row["case_id"], row["question"]]
        counts = [elsewhere[option] for option in row["options"]]
        choices.append(counts.index(max(counts)))
    return choices


BLIND_RULES: dict[str, Callable[[pd.DataFrame], list[int]]] = {
    "always the first option": _option_rule(lambda options: 0),
    "always the last option": _option_rule(lambda options: len(options) - 1),
    "the longest option": _option_rule(
        lambda options: max(range(len(options)), key=lambda k: len(options[k])),
    ),
    "the shortest option": _option_rule(
        lambda options: min(range(len(options)), key=lambda k: len(options[k])),
    ),
    "what is most often right for this text elsewhere in the set": _most_frequent_answer,
}
"""Rules that answer without images: name -> function that returns the index of the chosen option of
each question.
"""


def _measure_pairs(questions: pd.DataFrame) -> PairQuality:
    """Measure pairs; `questions` has two rows per pair, which differ in image and answer."""
    is_first = ~questions["case_id"].duplicated().to_numpy()
    first_rows = questions[is_first]
    component_sizes = np.unique(image_clusters(questions)[is_first], return_counts=True)[1]
    pairs, effective = len(first_rows), ClusterSizes.from_sizes(component_sizes).effective_clusters
    image_1_is_a = sum(tuple(answer) == (0,) for answer in first_rows["answer"])
    return PairQuality(
        pairs=pairs,
        components=len(component_sizes),
        largest_component=int(component_sizes.max()),
        effective_pairs=effective,
        image_1_is_a=image_1_is_a,
        position_p=float(binomtest(image_1_is_a, pairs).pvalue),
        smallest_difference={f"{share:.0%}": smallest_difference(effective, share) for share in DISCORDANT_SHARES},
        sim_med=list(map(float, first_rows["sim_med"])),
        sim_gen=list(map(float, first_rows["sim_gen"])),
    )


def smallest_difference(pairs: float, discordant: float) -> float | None:
    """Compute the smallest difference in set accuracy between two models that is detectable.

    A difference is detectable if a paired test at the 5 % level has a power of 80 % to find it. The
    difference d solves Connor's formula for McNemar's test, n = (z_a sqrt(p) + z_b sqrt(p - d^2))^2
    / d^2.

    Args:
        pairs: number of independent pairs; for pairs that share images, the effective number.
        discordant: p, the share of pairs that exactly one of the two models gets right.

    Returns:
        d in percentage points; None if no difference is detectable, since d cannot exceed the
        discordant share.
    """
    z_a, z_b = norm.ppf(1 - 0.05 / 2), norm.ppf(0.8)
    # Squaring z_b sqrt(p - d^2) = d sqrt(n) - z_a sqrt(p) gives a quadratic equation in d.
    a, b, c = (
        pairs + z_b**2,
        -2 * z_a * math.sqrt(discordant * pairs),
        (z_a**2 - z_b**2) * discordant,
    )
    discriminant = b * b - 4 * a * c
    difference = (-b + math.sqrt(discriminant)) / (2 * a) if discriminant >= 0 else math.inf
    return 100 * difference if difference <= discordant else None
