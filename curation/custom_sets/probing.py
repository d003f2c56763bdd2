"""Build a ProbMed-style set from a custom table of images (ProbMed, section 3).

The set has yes/no questions from modality to position, each with an adversarial counterpart: every
question with the answer yes is paired with one that names something the image does not show.

Absent is only what the table's column `absent` says, what a finding of the image excludes
according to `terms.csv`, and, as in the paper, a modality or organ that the image does not have,
or a finding of such an organ. A normal image shows none of the findings that the table has for its
organ and modality. Nothing else is asked.

ProbMed draws the counterparts freely, so frequent facts are mostly asked where they are true and
rare ones where they are not: knowing the frequencies is enough to answer without the image. Here
each fact is asked as absent exactly as often as it is asked as present. Such a pairing is a
circulation, found by linear programming with random weights. The wording is ours; what is asked,
and the names of the questions (`qa_type`), are the paper's.

See also: the table, positions and boxes (`probe_table.py`); tables that a model extracts from
captions (`writing/caption_facts.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from curation.custom_sets.probe_table import (
    IMAGE_PARTS,
    Finding,
    ProbedImage,
    excludes_position,
    labels_may_coincide,
)
from dataset_builders.errors import BadInput
from dataset_builders.label_reading import ParsedLabel, label_key, parse_finding
from dataset_builders.terms import (
    ImageContext,
    cannot_show,
    find_modalities,
    find_regions,
    modalities_disjoint,
    mutually_exclusive,
    normalize_term,
    regions_disjoint,
    singular,
    terms_by_name,
)

MAX_CANDIDATES = 24
"""Maximum number of absent facts considered per present one; more only costs time."""
SPARE_SHARE = 0.2
"""Questions on normal images (answer no) per question asked in pairs: 1.2 of 2.2 answers are then
no, 54.5 %."""


@dataclass(frozen=True)
class Fact:
    """A fact that an image shows, and the facts that it excludes.

    Attributes:
        image: the image.
        key: suffix that makes the fact unique within its image and kind: "", or `_k` for finding k.
        text: what is asked about.
        absent: texts of excluded facts.
        near: the excluded facts that images of this organ and modality can show; preferred, since
            they are harder to tell apart.
        question: template with {} for the text.
    """

    image: str
    key: str
    text: str
    absent: tuple[str, ...]
    near: tuple[str, ...] = ()
    question: str = "{}"

    def format_question(self, text: str) -> str:
        """Return the question about `text`."""
        return self.question.replace("{}", text)


def balance_pairs(facts: Sequence[Fact], seed: int) -> dict[tuple[str, str], str]:
    """Pair as many facts as possible with an absent one, each text as often absent as present.

    Args:
        facts: facts that are balanced together.
        seed: seed of the choice; equal facts and seed give equal pairs.

    Returns:
        (image, key) of a fact -> text of the absent fact to ask about.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    present_texts = {fact.text for fact in facts}
    rng = np.random.default_rng([seed, *hashlib.sha256("\0".join(sorted(present_texts)).encode()).digest()[:8]])
    candidates: list[tuple[int, str]] = []
    for index, fact in enumerate(facts):
        texts = [text for text in fact.absent if text in present_texts and text != fact.text]
        if len(texts) > MAX_CANDIDATES:
            order = sorted(rng.permutation(len(texts)), key=lambda k: texts[k] not in fact.near)
            texts = [texts[k] for k in sorted(order[:MAX_CANDIDATES])]
        candidates += [(index, text) for text in texts]
    if not candidates:
        return {}

    # A candidate is an edge from the text it asks as present to the text it asks as absent. Flow
    # conservation at each text means that it is asked equally often as both.
    row = {text: number for number, text in enumerate(sorted(present_texts))}
    columns = np.arange(len(candidates))
    present = np.array([row[facts[index].text] for index, _ in candidates])
    absent = np.array([row[text] for _, text in candidates])
    ones = np.ones(len(candidates))
    flow = csr_array(
        (np.r_[ones, -ones], (np.r_[present, absent], np.r_[columns, columns])),
        shape=(len(row), len(candidates)),
    )
    uses = csr_array(
        (ones, ([index for index, _ in candidates], columns)),
        shape=(len(facts), len(candidates)),
    )
    # Small random weights choose among equally large solutions; near facts weigh a little more.
    is_near = np.array([text in facts[index].near for index, text in candidates])
    weights = 1 + 0.01 * rng.random(len(candidates)) + 0.05 * is_near
    solution = linprog(
        -weights, A_ub=uses, b_ub=np.ones(len(facts)), A_eq=flow, b_eq=np.zeros(len(row)),
        bounds=(0, 1), method="highs-ds",
    )  # type: ignore[call-overload]  # fmt: skip
    if solution.status != 0:
        raise RuntimeError(f"the pairs could not be balanced: {solution.message}")
    # The constraints form a network matrix, so the vertices of the polytope are integral.
    chosen = np.flatnonzero(solution.x > 0.5)
    return {(facts[candidates[k][0]].image, facts[candidates[k][0]].key): candidates[k][1] for k in chosen}


def draw_pairs(facts: Sequence[Fact], seed: int) -> dict[tuple[str, str], str]:
    """Pair each fact with a random absent one, as in the paper (not balanced).

    Args:
        facts: facts of the images.
        seed: seed of the draw.

    Returns:
        (image, key) of a fact -> text of the absent fact to ask about.
    """
    pairs = {}
    for fact in facts:
        if fact.absent:
            candidates = fact.near or fact.absent
            pairs[fact.image, fact.key] = candidates[seeded_hash(f"{fact.image} {fact.key}", seed) % len(candidates)]
    return pairs


def assign_spare_facts(
    images: Mapping[str, Sequence[str]], times_asked: Mapping[str, int], seed: int
) -> dict[str, str]:
    """Assign each image an absent fact.

    A text is used at most `SPARE_SHARE` times as often as in pairs.

    Args:
        images: image -> texts of facts that it excludes.
        times_asked: text -> how often it is asked as present.
        seed: seed of the order.

    Returns:
        Image -> text, for the images that get one.
    """
    remaining = {text: int(SPARE_SHARE * times) for text, times in times_asked.items()}
    assigned = {}
    for image in sorted(images, key=lambda name: seeded_hash(f"spare {name}", seed)):
        candidates = [text for text in images[image] if remaining.get(text, 0) > 0]
        if candidates:
            # Prefer the text with most uses left; the hash breaks ties.
            text = max(
                candidates,
                key=lambda text: (remaining[text], seeded_hash(f"{image} {text}", seed)),
            )
            assigned[image] = text
            remaining[text] -= 1
    return assigned


def seeded_hash(key: str, seed: int) -> int:
    """Hash a key with a seed, to order and draw reproducibly.

    Args:
        key: what is ordered or drawn; adding other keys never changes its hash.
        seed: the seed.

    Returns:
        An integer of 64 bits.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}\0{key}".encode()).digest()[:8])


MODALITY_QUESTION, ORGAN_QUESTION, FINDING_QUESTION = (
    "Is the modality of this image {}?",
    "Does this image show the {}?",
    "Does this image show {}?",
)
ABNORMALITY_QUESTION, POSITION_QUESTION = (
    "Is anything in this image abnormal?",
    "Is the FINDING located here: {}?",
)
QA_TYPE_ASPECTS = {
    "modality": "modality", "body_part": "organ", "abnormality": "abnormality", "entity": "condition", "grounding": "position",
}  # fmt: skip
"""Prefix of a `qa_type` -> the aspect that it asks about."""
ABSENT_NOTE = (
    "What is asked as absent is named as absent in the source's table, excluded by what the image shows, or belongs to "
    "a modality or organ that the image does not have."
)
"""The card's paragraph on questions whose answer is no."""
TEXT_ONLY_NOTE_START = "Without the image"
"""First words of the card's sentence with the score of a reader of the text."""


def build_probes(
    images: Sequence[ProbedImage], seed: int = 0, balanced: bool = True
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Build the rows of probmed.json.

    Per image: `modality_gt/_hallu`, `body_part_gt/_hallu`, `abnormality`, `entity_gt_k/_hallu_k`
    per finding (a normal image: one `entity_hallu`), `grounding_gt_k/_hallu_k` per finding with a
    position. An aspect with one kind of answer only is left out.

    Args:
        images: images of the table.
        seed: seed of the counterparts.
        balanced: ask a text only as often as it is asked with both answers; else draw a
            counterpart for every fact, as in the paper.

    Returns:
        The rows, and how often each aspect could not be asked (`without_<aspect>`).

    Raises:
        BadInput: no question can be asked.
    """
    images = standardize_terms(images)
    image_types = {image.image: image.image_type for image in images}
    questions: dict[str, list[tuple[str, str, str]]] = {image.image: [] for image in images}
    times_asked: dict[str, Counter[str]] = defaultdict(Counter)
    left_out: Counter[str] = Counter()
    for (prefix, _), facts in _collect_facts(images).items():
        pairs = (balance_pairs if balanced else draw_pairs)(facts, seed)
        left_out[f"without_{prefix}"] += len(facts) - len(pairs)
        for fact in facts:
            if absent := pairs.get((fact.image, fact.key)):
                questions[fact.image] += [
                    (f"{prefix}_gt{fact.key}", fact.format_question(fact.text), "yes"),
                    (f"{prefix}_hallu{fact.key}", fact.format_question(absent), "no"),
                ]
                if prefix == "entity":
                    times_asked[image_types[fact.image]][fact.text] += 1

    # Normal images show no finding to pair: they get spare questions with the answer no.
    normal_findings = _normal_image_findings(images, times_asked, seed, balanced)
    left_out["without_entity"] += sum(image.is_normal for image in images) - len(normal_findings)
    for name, finding in normal_findings.items():
        questions[name].append(("entity_hallu", FINDING_QUESTION.format(finding), "no"))

    balanced_images = _balanced_abnormality_images(images, seed)
    candidates = [image for image in images if image.findings or image.is_normal]
    left_out["without_abnormality"] += len(candidates) - len(balanced_images)
    for image in candidates:
        if image.image in balanced_images:
            questions[image.image].append(
                ("abnormality", ABNORMALITY_QUESTION, "no" if image.is_normal else "yes"),
            )

    rows = [
        {
            "id": name, "image": name, "image_type": image_types[name],
            "qa_type": qa_type, "question": question, "answer": answer,
        }
        for name, image_questions in questions.items()
        for qa_type, question, answer in image_questions
    ]  # fmt: skip
    # An aspect with one answer only would be solved by always giving it.
    answers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        answers[_qa_type_prefix(row)].add(row["answer"])
    one_sided = [row for row in rows if len(answers[_qa_type_prefix(row)]) < 2]
    rows = [row for row in rows if len(answers[_qa_type_prefix(row)]) == 2]
    left_out.update(f"without_{_qa_type_prefix(row)}" for row in one_sided)
    if not rows:
        reason = (
            f"every question that can be asked has the answer {one_sided[0]['answer']!r}"
            if one_sided
            else "no question can be asked"
        )
        raise BadInput(
            f"{reason}: no modality, organ, finding or position that some images show is known to be absent from others"
            f"{', or not as often as it is shown (--unbalanced asks anyway)' if balanced else ''}. Name what "
            "is not there in the column `absent`, or add images of other organs and modalities."
        )
    return rows, {key: count for key, count in sorted(left_out.items()) if count}


def _qa_type_prefix(row: Mapping[str, Any]) -> str:
    """Return the prefix of a row's `qa_type`, a key of `QA_TYPE_ASPECTS`."""
    return next(prefix for prefix in QA_TYPE_ASPECTS if row["qa_type"].startswith(prefix))


def text_only_accuracy(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Compute the accuracy of a reader without images who knows the answers' frequencies.

    Args:
        rows: rows of probmed.json.

    Returns:
        Aspect (and `overall`) -> percent correct if each text gets its most frequent answer.
    """
    answers: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        for aspect in (QA_TYPE_ASPECTS[_qa_type_prefix(row)], "overall"):
            answers[aspect][row["question"]][row["answer"]] += 1
    return {
        aspect: round(
            100
            * sum(max(counts.values()) for counts in texts.values())
            / sum(counts.total() for counts in texts.values()),
            1,
        )
        for aspect, texts in sorted(answers.items())
    }


def measure_text_only(rows: Sequence[Mapping[str, str]]) -> tuple[dict[str, float], str]:
    """Compute the accuracy without the image, and the card's sentence about it.

    Args:
        rows: rows of probmed.json.

    Returns:
        The scores of `text_only_accuracy`, and a sentence that begins with `TEXT_ONLY_NOTE_START`.
    """
    scores = text_only_accuracy(rows)
    formatted = ", ".join(f"{score} % of {aspect}" for aspect, score in scores.items())
    return (
        scores,
        f"{TEXT_ONLY_NOTE_START}, knowing how often the answer to each text is yes in this very set, at most "
        f"{formatted} (chance: 50 %).",
    )


def standardize_terms(images: Sequence[ProbedImage]) -> list[ProbedImage]:
    """Give each organ, modality and finding its most frequent spelling.

    See section 3.3, standardised metadata.

    Args:
        images: images of the table.

    Returns:
        The same images in the same order, with these spellings.
    """
    organs = _frequent_spellings(
        (image.organ for image in images),
        lambda text: _spelling_key(text, "organ", "region"),
    )
    modalities = _frequent_spellings(
        (image.modality for image in images),
        lambda text: _spelling_key(text, "modality"),
    )
    # "mass" is another finding on another organ, so findings are standardised per place.
    findings = {
        place: _frequent_spellings(
            (label.text for image in images if image.place == place for label in _image_labels(image)),
            partial(label_key, context=place),
        )
        for place in {image.place for image in images}
    }

    def standardize(label: ParsedLabel, place: ImageContext) -> ParsedLabel:
        return replace(label, text=findings[place][label.text])

    return [
        replace(
            image,
            organ=organs[image.organ],
            modality=modalities[image.modality],
            findings=tuple(
                replace(finding, label=standardize(finding.label, image.place)) for finding in image.findings
            ),
            absent=tuple(standardize(label, image.place) for label in image.absent),
        )
        for image in images
    ]


def _image_labels(image: ProbedImage) -> list[ParsedLabel]:
    return [*(finding.label for finding in image.findings), *image.absent]


def _frequent_spellings(texts: Iterable[str], key: Callable[[str], str]) -> dict[str, str]:
    """Map each text to the most frequent text with the same key (ties: alphabetical order)."""
    counts = Counter(texts)
    spellings: dict[str, str] = {}
    for text, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        spellings.setdefault(key(text), text)
    return {text: spellings[key(text)] for text in counts}


def _spelling_key(text: str, *kinds: str) -> str:
    """Return the concept of an organ or modality; without one, its folded words in the singular."""
    term = terms_by_name(*kinds).get(normalize_term(text))
    return term.concept if term else " ".join(map(singular, normalize_term(text).split()))


def _collect_facts(images: Sequence[ProbedImage]) -> dict[tuple[str, str], list[Fact]]:
    """Collect the facts of all images by (prefix of `qa_type`, what is balanced together).

    Modality, organ and findings are balanced over all images; positions over those of one finding
    on images of one organ and modality.
    """
    modalities, organs = (
        sorted({image.modality for image in images}),
        sorted({image.organ for image in images}),
    )
    # Only what some image of the table shows is asked about as absent.
    findings = {finding.text: finding.label for image in images for finding in image.findings}
    positions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for image in images:
        for finding in image.findings:
            if finding.position:
                positions[image.image_type, finding.text.casefold()].add(finding.position)

    facts: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for image in images:
        image_modalities, image_regions = find_modalities(image.modality), find_regions(image.organ)
        other_modalities = tuple(
            modality for modality in modalities if modalities_disjoint(image_modalities, find_modalities(modality))
        )
        facts["modality", ""].append(
            Fact(image.image, "", image.modality, other_modalities, question=MODALITY_QUESTION)
        )
        other_organs = tuple(organ for organ in organs if regions_disjoint(image_regions, find_regions(organ)))
        facts["body_part", ""].append(
            Fact(image.image, "", image.organ, other_organs, question=ORGAN_QUESTION),
        )

        absent = (
            tuple(text for text, label in sorted(findings.items()) if is_known_absent(image, label))
            if image.findings
            else ()
        )
        impossible = {text for text in absent if (term := findings[text].term) and cannot_show(image.place, term)}
        near = tuple(text for text in absent if text not in impossible)
        for index, finding in enumerate(image.findings):
            facts["entity", ""].append(
                Fact(image.image, f"_{index}", finding.text, absent, near, FINDING_QUESTION),
            )
            if finding.position:
                key = (image.image_type, finding.text.casefold())
                other_positions = tuple(
                    position
                    for position in sorted(positions[key])
                    if _finding_excludes_position(image, index, position)
                )
                question = POSITION_QUESTION.replace("FINDING", finding.text)
                facts["grounding", " ".join(key)].append(
                    Fact(
                        image.image,
                        f"_{index}",
                        finding.position,
                        other_positions,
                        question=question,
                    )
                )
    return facts


def is_known_absent(image: ProbedImage, label: ParsedLabel) -> bool:
    """Whether an image is known not to show a finding.

    It is if its row says so, one of its findings excludes it (`terms.csv`), or it is a finding of
    an organ that the image does not have.

    Args:
        image: the image.
        label: the finding.
    """
    if any(labels_may_coincide(finding.label, label) for finding in image.findings):
        return False
    if label.text in {absent.text for absent in image.absent}:
        return True
    if label.term is None or parse_finding(label.text).term != label.term:
        return False  # a bare word ("mass") would mean something else on another image
    if cannot_show(image.place, label.term):
        return True
    return any(
        finding.label.term and not finding.label.side and not label.side
        and mutually_exclusive(finding.label.term.concept, label.term.concept)
        for finding in image.findings
    )  # fmt: skip


def _finding_excludes_position(image: ProbedImage, index: int, position: str) -> bool:
    """Whether the finding at `index`, and any that may be the same, is nowhere near `position`."""
    target = image.findings[index]
    for other_index, finding in enumerate(image.findings):
        both_known = finding.label.term is not None and target.label.term is not None
        if (
            other_index != index
            and both_known
            and not labels_may_coincide(
                replace(finding.label, side=""),
                replace(target.label, side=""),
            )
        ):
            continue
        # Boxes tell exactly which parts are free; of words, only opposites do.
        if finding.touched:
            if position in finding.touched or position not in IMAGE_PARTS:
                return False
        elif not finding.position or not excludes_position(finding.position, position):
            return False
    return True


def _normal_image_findings(
    images: Sequence[ProbedImage],
    times_asked: Mapping[str, Counter[str]],
    seed: int,
    balanced: bool,
) -> dict[str, str]:
    """Choose the finding that each normal image is asked about (answer no, table 19).

    Candidates are findings of its organ and modality that the vocabulary knows: a normal image may
    show a device or a variant.
    """
    chosen: dict[str, str] = {}
    for image_type in sorted({image.image_type for image in images}):
        findings = [finding for image in images if image.image_type == image_type for finding in image.findings]
        texts = sorted({finding.text for finding in findings if _is_abnormality(finding)})
        normal_images = {image.image: texts for image in images if image.image_type == image_type and image.is_normal}
        if balanced:
            chosen |= assign_spare_facts(normal_images, times_asked[image_type], seed)
        elif texts:
            chosen |= {image: texts[seeded_hash(f"normal {image}", seed) % len(texts)] for image in normal_images}
    return chosen


def _balanced_abnormality_images(images: Sequence[ProbedImage], seed: int) -> set[str]:
    """Choose the images that are asked about abnormality (section 3.3).

    Per organ and modality, as many normal images as images with a finding that the vocabulary
    knows: a label that only the table knows may be no abnormality (a device, a variant, a grade).
    """
    chosen: set[str] = set()
    for image_type in {image.image_type for image in images}:
        same_type = [image for image in images if image.image_type == image_type]
        normal_and_abnormal = [
            sorted(
                (
                    image.image
                    for image in same_type
                    if (any(map(_is_abnormality, image.findings)) if is_abnormal else image.is_normal)
                ),
                key=lambda name: seeded_hash(f"abnormality {name}", seed),
            )
            for is_abnormal in (False, True)
        ]
        chosen.update(name for names in normal_and_abnormal for name in names[: min(map(len, normal_and_abnormal))])
    return chosen


def _is_abnormality(finding: Finding) -> bool:
    """Whether the vocabulary knows a label as a finding."""
    return finding.label.term is not None and finding.label.term.kind == "finding"
