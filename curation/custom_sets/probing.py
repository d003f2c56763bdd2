"""Makes a ProbMed-style set from a custom table of images: yes/no questions from modality to position, each with an adversarial
counterpart (ProbMed, section 3).

Every question whose answer is yes has a counterpart that names something the image does not show: another modality, another organ, a
finding or a position that other images of the same organ and modality have. It is asked only where what the table says rules it out
(`exclusion.py`), drawn so that no text pays (`balance.py`). The wording is ours; what is asked, and how questions are named
(`qa_type`), is the paper's. Only what the table says is asked about: a blank cell says nothing, `No Finding` (or normal, none) says
that the image is normal.

See also: the table (`probe_table.py`), boxes (`boxes.py`); tables that a model read out of captions (`writing/caption_facts.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from curation.custom_sets.balance import Fact, balanced_pairs, drawn_number, drawn_pairs, spread, text_only
from curation.custom_sets.body_regions import excludes_organ
from curation.custom_sets.boxes import PARTS
from curation.custom_sets.exclusion import (
    differs_from,
    excludes_finding,
    excludes_modality,
    excludes_position,
    same_term,
)
from curation.custom_sets.probe_table import Probed

MODALITY, ORGAN, FINDING = "Was this image made by {}?", "Does this image show the {}?", "Does this image show {}?"
ABNORMAL, POSITION = "Is anything in this image abnormal?", "Is the {} located here: {}?"
ASPECT_OF = {
    "modality": "modality", "body_part": "organ", "abnormality": "abnormality", "entity": "condition", "grounding": "position",
}  # fmt: skip
"""How a `qa_type` begins -> the aspect it asks about."""
WITHOUT_IMAGE = "Without the image"
"""How the sentence of the card begins that says what a reader of the text gets."""


def probe(
    images: Sequence[Probed], seed: int = 0, balanced: bool = True
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """The rows of probmed.json, and how often something could not be asked (`without_<aspect>`).

    Per image: `modality_gt/_hallu`, `body_part_gt/_hallu`, `abnormality`, `entity_gt_k/_hallu_k` per finding (a normal image: one
    `entity_hallu`), `grounding_gt_k/_hallu_k` per finding with a position. `balanced`: only as far as no text pays; else the paper's
    random draw of every fact that can be ruled out.
    """
    images = standardised(images)
    draw = balanced_pairs if balanced else drawn_pairs
    chosen: dict[tuple[str, str, str], tuple[str, str]] = {}
    left_out: Counter[str] = Counter()
    for (kind, _), facts in sorted(_facts(images).items()):
        pairs = draw(facts, seed)
        left_out[f"without_{kind}"] += len(facts) - len(pairs)
        for fact in facts:
            if (fact.image, fact.key) in pairs:
                chosen[fact.image, kind, fact.key] = fact.text, pairs[fact.image, fact.key]
    of_normal = _of_normal_images(images, chosen, seed, balanced)
    abnormality = _both_kinds_alike(images, seed) if balanced else {i.image for i in images if i.findings is not None}
    normal = sum(image.findings == () for image in images)
    left_out["without_entity"] += normal - len(of_normal)
    left_out["without_abnormality"] += sum(image.findings is not None for image in images) - len(abnormality)
    rows = [
        {
            "id": image.image, "image": image.image, "image_type": image.image_type,
            "qa_type": kind, "question": question, "answer": answer,
        }
        for image in images
        for kind, question, answer in _questions_of(image, chosen, of_normal, abnormality)
    ]  # fmt: skip
    return rows, {what: count for what, count in sorted(left_out.items()) if count}


def known_by_text(rows: Sequence[Mapping[str, str]]) -> tuple[dict[str, dict[str, float]], str]:
    """What readers without the image get of the questions (`text_only`), and the sentence of the card on it."""
    scores = text_only(rows, ASPECT_OF)
    best = ", ".join(f"{max(readers.values())} % of {aspect}" for aspect, readers in scores.items())
    return (
        scores,
        f"{WITHOUT_IMAGE}, knowing how often each text is right with yes in this very set, at most {best} (chance: 50 %).",
    )


def standardised(images: Sequence[Probed]) -> list[Probed]:
    """The same images with one spelling, the most frequent, for each organ, modality and finding (section 3.3: standardised metadata).

    Findings of an image that are spellings of one are kept as they are.
    """
    spellings: dict[str, dict[str, str]] = {}
    for field in ("organ", "modality", "findings"):
        terms: Counter[str] = Counter()
        for image in images:
            value = getattr(image, field)
            terms.update([value] if isinstance(value, str) else value or ())
        chosen: dict[str, str] = {}
        for term, _ in sorted(terms.items(), key=lambda item: (-item[1], item[0])):
            chosen[term] = next((known for known in dict.fromkeys(chosen.values()) if same_term(known, term)), term)
        spellings[field] = chosen

    def of(image: Probed) -> Probed:
        findings = image.findings
        if findings:
            renamed = tuple(spellings["findings"][finding] for finding in findings)
            findings = renamed if len({text.casefold() for text in renamed}) == len(renamed) else findings
        return replace(
            image,
            organ=spellings["organ"][image.organ],
            modality=spellings["modality"][image.modality],
            findings=findings,
        )

    return [of(image) for image in images]


def _facts(images: Sequence[Probed]) -> dict[tuple[str, str], list[Fact]]:
    """(kind of question, what is balanced together) -> facts: modality and organ over all images, findings over those of an organ and
    modality, positions over those of a finding in these."""
    modalities, organs = sorted({i.modality for i in images}), sorted({i.organ for i in images})
    findings: dict[str, set[str]] = defaultdict(set)
    positions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for image in images:
        findings[image.image_type].update(image.findings or ())
        for finding, position in zip(image.findings or (), image.positions, strict=True):
            if position:
                positions[image.image_type, finding.casefold()].add(position)
    facts: dict[tuple[str, str], list[Fact]] = defaultdict(list)
    for image in images:
        elsewhere = tuple(other for other in modalities if excludes_modality(image.modality, other))
        facts["modality", ""].append(Fact(image.image, "", image.modality, elsewhere))
        facts["body_part", ""].append(
            Fact(image.image, "", image.organ, tuple(other for other in organs if excludes_organ(image.organ, other)))
        )
        absent = tuple(finding for finding in sorted(findings[image.image_type]) if _rules_out(image, finding))
        for index, (finding, position) in enumerate(zip(image.findings or (), image.positions, strict=True)):
            facts["entity", image.image_type].append(Fact(image.image, f"_{index}", finding, absent))
            if position:
                key = (image.image_type, finding.casefold())
                fitting = tuple(other for other in sorted(positions[key]) if _lies_elsewhere(image, index, other))
                facts["grounding", " ".join(key)].append(Fact(image.image, f"_{index}", position, fitting))
    return facts


def _rules_out(image: Probed, finding: str) -> bool:
    """Whether what the table says of an image excludes a finding."""
    if image.findings is None:
        return False
    if image.absent is not None and any(same_term(finding, absent) for absent in image.absent):
        return differs_from(image.findings, finding)
    return image.absent is None and excludes_finding(image.findings, finding)


def _lies_elsewhere(image: Probed, index: int, position: str) -> bool:
    """Whether the finding at `index`, and each that may be the same, lies nowhere near `position`."""
    findings = image.findings or ()
    for at, finding in enumerate(findings):
        if at != index and excludes_finding((findings[index],), finding):
            continue
        if image.touched and image.touched[at]:
            if position in image.touched[at] or position not in PARTS:
                return False
        elif not image.positions[at] or not excludes_position(image.positions[at], position):
            return False
    return True


def _of_normal_images(
    images: Sequence[Probed], chosen: dict[tuple[str, str, str], tuple[str, str]], seed: int, balanced: bool
) -> dict[str, str]:
    """Normal image -> the one finding that it is asked about (its answer is no, table 19)."""
    kinds = {image.image: image.image_type for image in images}
    times_asked: dict[str, Counter[str]] = defaultdict(Counter)
    for (image, kind, _), (true, _) in chosen.items():
        if kind == "entity":
            times_asked[kinds[image]][true] += 1
    given: dict[str, str] = {}
    for kind in sorted(set(kinds.values())):
        named = sorted({finding for image in images if image.image_type == kind for finding in image.findings or ()})
        normal = {image.image: named for image in images if image.image_type == kind and image.findings == ()}
        if balanced:
            given |= spread(normal, times_asked[kind], seed)
        elif named:
            given |= {image: named[drawn_number(f"normal {image}", seed) % len(named)] for image in normal}
    return given


def _both_kinds_alike(images: Sequence[Probed], seed: int) -> set[str]:
    """The images that are asked about abnormality: of each organ and modality as many normal as abnormal ones (section 3.3)."""
    kept: set[str] = set()
    for kind in {image.image_type for image in images}:
        sides = [
            sorted(
                (
                    i.image
                    for i in images
                    if i.image_type == kind and i.findings is not None and bool(i.findings) == side
                ),
                key=lambda name: drawn_number(f"abnormality {name}", seed),
            )
            for side in (False, True)
        ]
        kept.update(name for side in sides for name in side[: min(map(len, sides))])
    return kept


def _questions_of(
    image: Probed,
    chosen: dict[tuple[str, str, str], tuple[str, str]],
    of_normal: dict[str, str],
    abnormality: set[str],
) -> Iterator[tuple[str, str, str]]:
    """qa_type, question and answer of what is asked about an image."""
    for kind, template in (("modality", MODALITY), ("body_part", ORGAN)):
        if (image.image, kind, "") in chosen:
            true, false = chosen[image.image, kind, ""]
            yield f"{kind}_gt", template.format(true), "yes"
            yield f"{kind}_hallu", template.format(false), "no"
    if image.image in abnormality:
        yield "abnormality", ABNORMAL, "yes" if image.findings else "no"
    if image.image in of_normal:
        yield "entity_hallu", FINDING.format(of_normal[image.image]), "no"
    for index, finding in enumerate(image.findings or ()):
        if (image.image, "entity", f"_{index}") in chosen:
            true, false = chosen[image.image, "entity", f"_{index}"]
            yield f"entity_gt_{index}", FINDING.format(true), "yes"
            yield f"entity_hallu_{index}", FINDING.format(false), "no"
        if (image.image, "grounding", f"_{index}") in chosen:
            true, false = chosen[image.image, "grounding", f"_{index}"]
            yield f"grounding_gt_{index}", POSITION.format(finding, true), "yes"
            yield f"grounding_hallu_{index}", POSITION.format(finding, false), "no"
