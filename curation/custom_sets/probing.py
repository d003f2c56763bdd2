"""Make a ProbMed-style set from a custom table of images: yes/no questions from modality to position, each with an adversarial
counterpart (ProbMed, section 3).

Every question whose answer is yes has a counterpart that names something the image does not show. What it does not show is only what
the table's column `absent` says, what a finding of the image rules out by `terms.csv`, and, as in the paper, a modality or organ that
the image does not have, or a finding of such an organ; a normal image shows none of the findings that the table has for its organ and
modality. About anything else it is not asked. A pair asks about a fact that an image shows and about one that it rules out. Drawn freely
(as ProbMed draws them), frequent facts are mostly asked where they are true and rare ones where they are not, so that knowing the
frequencies is enough to answer without the image. Here each fact is asked as absent exactly as often as it is asked as present: a
circulation, found by linear programming with random weights. The wording is ours; what is
asked, and how questions are named (`qa_type`), is the paper's.

See also: the table, positions and boxes (`probe_table.py`); tables that a model read out of captions
(`writing/caption_facts.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from curation.custom_sets.probe_table import IMAGE_PARTS, Finding, ProbedImage, excludes_position, labels_may_coincide
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
"""Of more absent facts so many are drawn for each present one; more would change nothing but the time."""
SPARE_SHARE = 0.2
"""For each question asked in pairs, so many more may be asked of normal images, where the answer is no: 1.2 of 2.2 are "no" then,
54.5 %."""


@dataclass(frozen=True)
class Fact:
    """A fact that an image shows, and the facts that it rules out. `image` and `key` name it; `text` is what is asked about, in `question`.
    `near`: those of `absent` that images of its organ and modality can show, which are harder to tell and so preferred."""

    image: str
    key: str
    text: str
    absent: tuple[str, ...]
    near: tuple[str, ...] = ()
    question: str = "{}"

    def asked(self, text: str) -> str:
        """The question about `text`."""
        return self.question.replace("{}", text)


def balance_pairs(facts: Sequence[Fact], seed: int) -> dict[tuple[str, str], str]:
    """(image, key) -> the absent fact to ask about, for as many facts as can be asked in balance: each text as often present as
    absent. The same facts and seed give the same pairs."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    known = {fact.text for fact in facts}
    rng = np.random.default_rng([seed, *hashlib.sha256("\0".join(sorted(known)).encode()).digest()[:8]])
    pairs: list[tuple[int, str]] = []
    for at, fact in enumerate(facts):
        fitting = [text for text in fact.absent if text in known and text != fact.text]
        if len(fitting) > MAX_CANDIDATES:
            order = sorted(rng.permutation(len(fitting)), key=lambda at: fitting[at] not in fact.near)
            fitting = [fitting[at] for at in sorted(order[:MAX_CANDIDATES])]
        pairs += [(at, text) for text in fitting]
    if not pairs:
        return {}
    row = {text: number for number, text in enumerate(sorted(known))}
    columns = np.arange(len(pairs))
    present = np.array([row[facts[at].text] for at, _ in pairs])
    absent = np.array([row[text] for _, text in pairs])
    ones = np.ones(len(pairs))
    flow = csr_array(
        (np.r_[ones, -ones], (np.r_[present, absent], np.r_[columns, columns])), shape=(len(row), len(pairs))
    )
    once = csr_array((ones, ([at for at, _ in pairs], columns)), shape=(len(facts), len(pairs)))
    worth = 1 + 0.01 * rng.random(len(pairs)) + 0.05 * np.array([text in facts[at].near for at, text in pairs])
    found = linprog(
        -worth, A_ub=once, b_ub=np.ones(len(facts)), A_eq=flow, b_eq=np.zeros(len(row)),
        bounds=(0, 1), method="highs-ds",
    )  # type: ignore[call-overload]  # fmt: skip
    if found.status != 0:
        raise RuntimeError(f"the pairs could not be balanced: {found.message}")
    # The constraints are those of a network, so that the corners of its polytope are whole numbers.
    chosen = np.flatnonzero(found.x > 0.5)
    return {(facts[pairs[k][0]].image, facts[pairs[k][0]].key): pairs[k][1] for k in chosen}


def draw_pairs(facts: Sequence[Fact], seed: int) -> dict[tuple[str, str], str]:
    """(image, key) -> an absent fact drawn at random, as in the paper: not balanced."""
    drawn = {}
    for fact in facts:
        if fact.absent:
            among = fact.near or fact.absent
            drawn[fact.image, fact.key] = among[seeded_hash(f"{fact.image} {fact.key}", seed) % len(among)]
    return drawn


def assign_spare_facts(
    images: Mapping[str, Sequence[str]], times_asked: Mapping[str, int], seed: int
) -> dict[str, str]:
    """Assign each image an absent fact that it rules out.

    Each text is used at most `SPARE_SHARE` times as often as it is asked in pairs.
    """
    left = {text: int(SPARE_SHARE * times) for text, times in times_asked.items()}
    given = {}
    for image in sorted(images, key=lambda name: seeded_hash(f"spare {name}", seed)):
        fitting = [text for text in images[image] if left.get(text, 0) > 0]
        if fitting:
            text = max(fitting, key=lambda text: (left[text], seeded_hash(f"{image} {text}", seed)))
            given[image] = text
            left[text] -= 1
    return given


def seeded_hash(key: str, seed: int) -> int:
    """A number that depends on the key and the seed alone, to order and draw by."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{key}".encode()).digest()[:8])


MODALITY_QUESTION, ORGAN_QUESTION, FINDING_QUESTION = (
    "Is the modality of this image {}?",
    "Does this image show the {}?",
    "Does this image show {}?",
)
ABNORMALITY_QUESTION, POSITION_QUESTION = "Is anything in this image abnormal?", "Is the FINDING located here: {}?"
ASPECTS = {
    "modality": "modality", "body_part": "organ", "abnormality": "abnormality", "entity": "condition", "grounding": "position",
}  # fmt: skip
"""How a `qa_type` begins -> the aspect it asks about."""
ABSENT_NOTE = (
    "What is asked as absent is named as absent in the source's table, ruled out by what the image shows, or of a modality or organ that "
    "the image does not have."
)
"""The card's paragraph on questions whose answer is no."""
TEXT_ONLY_NOTE_START = "Without the image"
"""How the sentence of the card begins that says what a reader of the text gets."""


def build_probes(
    images: Sequence[ProbedImage], seed: int = 0, balanced: bool = True
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """The rows of probmed.json, and how often something could not be asked (`without_<aspect>`).

    Per image: `modality_gt/_hallu`, `body_part_gt/_hallu`, `abnormality`, `entity_gt_k/_hallu_k` per finding (a normal image: one
    `entity_hallu`), `grounding_gt_k/_hallu_k` per finding with a position. `balanced`: only as far as no text pays; else the paper's
    random draw of every fact that can be ruled out. An aspect that would have answers of one kind only is left out. Raises BadInput where
    nothing is left.
    """
    images = standardize_terms(images)
    kind_of = {image.image: image.image_type for image in images}
    asked: dict[str, list[tuple[str, str, str]]] = {image.image: [] for image in images}
    times_asked: dict[str, Counter[str]] = defaultdict(Counter)
    left_out: Counter[str] = Counter()
    for (kind, _), facts in _collect_facts(images).items():
        pairs = (balance_pairs if balanced else draw_pairs)(facts, seed)
        left_out[f"without_{kind}"] += len(facts) - len(pairs)
        for fact in facts:
            if false := pairs.get((fact.image, fact.key)):
                asked[fact.image] += [
                    (f"{kind}_gt{fact.key}", fact.asked(fact.text), "yes"),
                    (f"{kind}_hallu{fact.key}", fact.asked(false), "no"),
                ]
                if kind == "entity":
                    times_asked[kind_of[fact.image]][fact.text] += 1
    of_normal = _normal_image_findings(images, times_asked, seed, balanced)
    left_out["without_entity"] += sum(image.is_normal for image in images) - len(of_normal)
    for image, finding in of_normal.items():
        asked[image].append(("entity_hallu", FINDING_QUESTION.format(finding), "no"))
    abnormality = _balanced_abnormality_images(images, seed)
    about_it = [image for image in images if image.findings or image.is_normal]
    left_out["without_abnormality"] += len(about_it) - len(abnormality)
    for each in about_it:
        if each.image in abnormality:
            asked[each.image].append(("abnormality", ABNORMALITY_QUESTION, "no" if each.is_normal else "yes"))
    rows = [
        {
            "id": image, "image": image, "image_type": kind_of[image],
            "qa_type": kind, "question": question, "answer": answer,
        }
        for image, questions in asked.items()
        for kind, question, answer in questions
    ]  # fmt: skip
    sides: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        sides[_qa_type_prefix(row)].add(row["answer"])
    one_sided = [row for row in rows if len(sides[_qa_type_prefix(row)]) < 2]
    rows = [row for row in rows if len(sides[_qa_type_prefix(row)]) == 2]
    left_out.update(f"without_{_qa_type_prefix(row)}" for row in one_sided)
    if not rows:
        only = (
            f"every question that can be asked has the answer {one_sided[0]['answer']!r}"
            if one_sided
            else "no question can be asked"
        )
        raise BadInput(
            f"{only}: of no modality, organ, finding or position that images show is it known that others do not show it"
            f"{', or not as often as they do (--unbalanced asks anyway)' if balanced else ''}. Name what "
            "is not there in the column `absent`, or add images of other organs and modalities."
        )
    return rows, {what: count for what, count in sorted(left_out.items()) if count}


def _qa_type_prefix(row: Mapping[str, Any]) -> str:
    """How a row's `qa_type` begins: a set asks of an aspect with both answers, or not at all."""
    return next(start for start in ASPECTS if row["qa_type"].startswith(start))


def text_only_accuracy(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Percent right of a reader without the image who knows how often each question is right with yes in this very set, per aspect and
    `overall`."""
    answers: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        for part in (ASPECTS[_qa_type_prefix(row)], "overall"):
            answers[part][row["question"]][row["answer"]] += 1
    return {
        part: round(
            100 * sum(max(said.values()) for said in of.values()) / sum(said.total() for said in of.values()), 1
        )
        for part, of in sorted(answers.items())
    }


def measure_text_only(rows: Sequence[Mapping[str, str]]) -> tuple[dict[str, float], str]:
    """The accuracy without the image (`text_only_accuracy`), and the card's sentence about it."""
    scores = text_only_accuracy(rows)
    best = ", ".join(f"{score} % of {aspect}" for aspect, score in scores.items())
    return (
        scores,
        f"{TEXT_ONLY_NOTE_START}, knowing how often each text is right with yes in this very set, at most {best} (chance: 50 %).",
    )


def standardize_terms(images: Sequence[ProbedImage]) -> list[ProbedImage]:
    """The same images with one spelling, the most frequent, for each organ, modality and finding (section 3.3: standardised metadata)."""
    organ = _frequent_spellings((image.organ for image in images), lambda text: _spelling_key(text, "organ", "region"))
    modality = _frequent_spellings((image.modality for image in images), lambda text: _spelling_key(text, "modality"))
    places = {image.place for image in images}
    finding = {
        place: _frequent_spellings(
            (label.text for image in images if image.place == place for label in _image_labels(image)),
            partial(label_key, context=place),
        )
        for place in places
    }

    def renamed(label: ParsedLabel, place: ImageContext) -> ParsedLabel:
        return replace(label, text=finding[place][label.text])

    return [
        replace(
            image,
            organ=organ[image.organ],
            modality=modality[image.modality],
            findings=tuple(replace(each, label=renamed(each.label, image.place)) for each in image.findings),
            absent=tuple(renamed(each, image.place) for each in image.absent),
        )
        for image in images
    ]


def _image_labels(image: ProbedImage) -> list[ParsedLabel]:
    return [*(finding.label for finding in image.findings), *image.absent]


def _frequent_spellings(texts: Iterable[str], key: Callable[[str], str]) -> dict[str, str]:
    """Text -> the most frequent text of the same key."""
    counts = Counter(texts)
    chosen: dict[str, str] = {}
    for text, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        chosen.setdefault(key(text), text)
    return {text: chosen[key(text)] for text in counts}


def _spelling_key(text: str, *kinds: str) -> str:
    """Spellings of one organ or modality have one key: the concept where it is known, else the folded words in the singular."""
    known = terms_by_name(*kinds).get(normalize_term(text))
    return known.concept if known else " ".join(map(singular, normalize_term(text).split()))


def _collect_facts(images: Sequence[ProbedImage]) -> dict[tuple[str, str], list[Fact]]:
    """(kind of question, what is balanced together) -> facts: modality, organ and findings over all images, positions over those of a
    finding on images of an organ and modality."""
    modalities, organs = sorted({i.modality for i in images}), sorted({i.organ for i in images})
    findings = {finding.text: finding.label for image in images for finding in image.findings}
    positions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for image in images:
        for finding in image.findings:
            if finding.position:
                positions[image.image_type, finding.text.casefold()].add(finding.position)
    facts: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for image in images:
        made_by, shown = find_modalities(image.modality), find_regions(image.organ)
        others = tuple(other for other in modalities if modalities_disjoint(made_by, find_modalities(other)))
        facts["modality", ""].append(Fact(image.image, "", image.modality, others, question=MODALITY_QUESTION))
        apart = tuple(other for other in organs if regions_disjoint(shown, find_regions(other)))
        facts["body_part", ""].append(Fact(image.image, "", image.organ, apart, question=ORGAN_QUESTION))
        absent = (
            tuple(text for text, label in sorted(findings.items()) if is_known_absent(image, label))
            if image.findings
            else ()
        )
        elsewhere = {text for text in absent if (term := findings[text].term) and cannot_show(image.place, term)}
        near = tuple(text for text in absent if text not in elsewhere)
        for index, finding in enumerate(image.findings):
            facts["entity", ""].append(Fact(image.image, f"_{index}", finding.text, absent, near, FINDING_QUESTION))
            if finding.position:
                key = (image.image_type, finding.text.casefold())
                fitting = tuple(other for other in sorted(positions[key]) if _excludes_position(image, index, other))
                where = POSITION_QUESTION.replace("FINDING", finding.text)
                facts["grounding", " ".join(key)].append(
                    Fact(image.image, f"_{index}", finding.position, fitting, question=where)
                )
    return facts


def is_known_absent(image: ProbedImage, asked: ParsedLabel) -> bool:
    """True where it is known that an image does not show a finding: its row says so, a finding of it rules that out (`terms.csv`), or it
    is a finding of an organ that the image does not have."""
    if any(labels_may_coincide(finding.label, asked) for finding in image.findings):
        return False
    if asked.text in {label.text for label in image.absent}:
        return True
    if asked.term is None or parse_finding(asked.text).term != asked.term:
        return False  # a bare word ("mass") would mean something else on another image
    if cannot_show(image.place, asked.term):
        return True
    return any(
        finding.label.term and not finding.label.side and not asked.side
        and mutually_exclusive(finding.label.term.concept, asked.term.concept)
        for finding in image.findings
    )  # fmt: skip


def _excludes_position(image: ProbedImage, index: int, position: str) -> bool:
    """True where the finding at `index`, and each that may be the same, lies nowhere near `position`."""
    asked = image.findings[index]
    for at, finding in enumerate(image.findings):
        both_known = finding.label.term is not None and asked.label.term is not None
        if (
            at != index
            and both_known
            and not labels_may_coincide(replace(finding.label, side=""), replace(asked.label, side=""))
        ):
            continue
        if finding.touched:
            if position in finding.touched or position not in IMAGE_PARTS:
                return False
        elif not finding.position or not excludes_position(finding.position, position):
            return False
    return True


def _normal_image_findings(
    images: Sequence[ProbedImage], times_asked: Mapping[str, Counter[str]], seed: int, balanced: bool
) -> dict[str, str]:
    """Normal image -> the one finding that it is asked about, of those the table has for its organ and modality and the vocabulary knows
    (its answer is no, table 19): a normal image may show a device or a variant."""
    given: dict[str, str] = {}
    for kind in sorted({image.image_type for image in images}):
        found = [finding for image in images if image.image_type == kind for finding in image.findings]
        named = sorted({finding.text for finding in found if _is_abnormality(finding)})
        normal = {image.image: named for image in images if image.image_type == kind and image.is_normal}
        if balanced:
            given |= assign_spare_facts(normal, times_asked[kind], seed)
        elif named:
            given |= {image: named[seeded_hash(f"normal {image}", seed) % len(named)] for image in normal}
    return given


def _balanced_abnormality_images(images: Sequence[ProbedImage], seed: int) -> set[str]:
    """The images that are asked about abnormality: of each organ and modality as many that the table calls normal as show a finding that
    the vocabulary knows (section 3.3). What only the table knows may be no abnormality: a device, a variant, a grade."""
    kept: set[str] = set()
    for kind in {image.image_type for image in images}:
        own = [image for image in images if image.image_type == kind]
        sides = [
            sorted(
                (
                    image.image
                    for image in own
                    if (any(map(_is_abnormality, image.findings)) if side else image.is_normal)
                ),
                key=lambda name: seeded_hash(f"abnormality {name}", seed),
            )
            for side in (False, True)
        ]
        kept.update(name for side in sides for name in side[: min(map(len, sides))])
    return kept


def _is_abnormality(finding: Finding) -> bool:
    return finding.label.term is not None and finding.label.term.kind == "finding"
