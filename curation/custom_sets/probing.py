"""Build a ProbMed-style set from a custom table of images (ProbMed, section 3).

The set has yes/no questions about modality, organ, abnormality, findings and positions. Every
question with the answer yes has an adversarial counterpart: the same question about something that
the image does not show.

A finding counts as absent only if the table's column `absent` says so, if a finding of the image
excludes it according to `terms.csv`, or, as in the paper, if it belongs to an organ that the image
does not show. A modality or organ is absent if the image has a different one. A normal image shows
none of the findings that the table has for its organ and modality. Nothing else is asked about as
absent.

ProbMed draws the counterparts at random, so questions about frequent facts mostly have the answer
yes, and those about rare facts the answer no. Knowing the frequencies is therefore enough to answer
without the image. Here each fact is asked about as absent exactly as often as it is asked about as
present. Such a pairing is a circulation in a graph of facts, which linear programming with random
weights finds. The wording is ours; what is asked, and the names of the questions (`qa_type`), are
the paper's.

See also: reading the table, its positions and boxes (`probe_table.py`); tables that a model
extracts from captions (`writing/captions.py`).
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from curation.custom_sets.custom_questions import labels_may_coincide
from curation.custom_sets.probe_table import (
    IMAGE_PARTS,
    Finding,
    ProbedImage,
    excludes_position,
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
"""Maximum number of absent facts that are considered per present fact; more only cost time."""
SPARE_SHARE = 0.2
"""Maximum number of questions about normal images (answer no) per pair of questions (one yes, one
no): 1.2 of 2.2 answers are then no, which is 54.5 %.
"""


@dataclass(frozen=True)
class Fact:
    """A fact that an image shows, and the facts that it excludes.

    Attributes:
        image: the image.
        key: suffix of the question's `qa_type`: "", or `_k` for finding k of the image.
        text: what is asked about.
        absent: texts of excluded facts.
        near: those of the excluded facts that images of this organ and modality can show. They are
            preferred, since such questions are harder.
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
    """Pair as many facts as possible with an absent one.

    Each text is asked about as present and as absent equally often.

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

    # A candidate pair is an edge from the text of its present fact to the text of its absent one.
    # Flow conservation at each text means that it is asked about equally often as present and as
    # absent.
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
    # Small random weights choose among solutions with equally many pairs; near facts weigh slightly
    # more.
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
    """Assign an absent fact to each image, as far as possible.

    Each text is used at most `SPARE_SHARE` times as often as it is asked about in pairs.

    Args:
        images: image -> texts of facts that it excludes.
        times_asked: text -> how often it is asked about as present.
        seed: seed of the order in which images get their facts.

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
    """Hash a key with a seed, for reproducible orders and draws.

    Args:
        key: identifies what is ordered or drawn; its hash does not depend on other keys.
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
    "What a question with the answer no asks about is listed as absent in the source's table, "
    "excluded by what the image shows, or "
    "belongs to a modality or organ that the image does not have."
)
"""Paragraph on the dataset card about questions whose answer is no."""
TEXT_ONLY_NOTE_START = "Without the image"
"""First words of the sentence on the dataset card about the score without images."""


def build_probes(
    images: Sequence[ProbedImage], seed: int = 0, balanced: bool = True
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Build the rows of probmed.json.

    `qa_type` names the aspect and, for questions in pairs, the answer: `_gt` means yes, `_hallu`
    means no. Each image has a pair of questions about its modality and one about its organ
    (`body_part_gt`, `body_part_hallu`), and a question about `abnormality`. Each finding k has a
    pair of questions (`entity_gt_k`, `entity_hallu_k`), and so has its position, if known
    (`grounding_gt_k`, `grounding_hallu_k`). A normal image has a single question about a finding
    instead (`entity_hallu`). An aspect whose questions all have the same answer is left out.

    Args:
        images: images of the table.
        seed: seed of the counterparts.
        balanced: if True, ask about each text equally often with both answers; otherwise draw a
            counterpart for every fact, as in the paper.

    Returns:
        The rows, and how often each aspect could not be asked about (`without_<prefix of
        qa_type>`).

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

    # Normal images have no finding to pair, so each gets a single question with the answer no.
    normal_findings = _normal_image_findings(images, times_asked, seed, balanced)
    left_out["without_entity"] += sum(image.is_normal for image in images) - len(normal_findings)
    for name, finding in normal_findings.items():
        questions[name].append(("entity_hallu", FINDING_QUESTION.format(finding), "no"))

    abnormality_answers = _balanced_abnormality_answers(images, seed)
    left_out["without_abnormality"] += sum(
        image.image not in abnormality_answers for image in images if image.findings or image.is_normal
    )
    for name, answer in abnormality_answers.items():
        questions[name].append(("abnormality", ABNORMALITY_QUESTION, answer))

    rows = [
        {
            "id": name, "image": name, "image_type": image_types[name],
            "qa_type": qa_type, "question": question, "answer": answer,
        }
        for name, image_questions in questions.items()
        for qa_type, question, answer in image_questions
    ]  # fmt: skip
    # If all questions of an aspect had the same answer, always giving that answer would solve it.
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
            f"{reason}: no modality, organ, finding or position that some images show is known to "
            "be absent from others"
            f"{', or not as often as it is shown (--unbalanced asks anyway)' if balanced else ''}. "
            "List what "
            "is not there in the column `absent`, or add images of other organs and modalities."
        )
    return rows, {key: count for key, count in sorted(left_out.items()) if count}


def _qa_type_prefix(row: Mapping[str, Any]) -> str:
    """Return the prefix of a row's `qa_type`, a key of `QA_TYPE_ASPECTS`."""
    return next(prefix for prefix in QA_TYPE_ASPECTS if row["qa_type"].startswith(prefix))


def text_only_accuracy(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Compute the best possible accuracy without images, given how often each answer is correct.

    Args:
        rows: rows of probmed.json.

    Returns:
        Aspect, or `overall` -> percentage correct if each question text gets its most frequent
        answer.
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
    """Compute the accuracy without images, and the dataset card's sentence about it.

    Args:
        rows: rows of probmed.json.

    Returns:
        The scores of `text_only_accuracy`, and a sentence that begins with `TEXT_ONLY_NOTE_START`.
    """
    scores = text_only_accuracy(rows)
    formatted = ", ".join(f"{score} % of {aspect}" for aspect, score in scores.items())
    return (
        scores,
        f"{TEXT_ONLY_NOTE_START}, knowing how often the answer to each question text is yes in "
        "this set, the best possible score is "
        f"{formatted} (chance: 50 %).",
    )


def standardize_terms(images: Sequence[ProbedImage]) -> list[ProbedImage]:
    """Replace each organ, modality and finding by its most frequent spelling.

    See the paper's section 3.3 on standardised metadata.

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
    # "mass" is a different finding on a different organ, so findings are standardised per organ and
    # modality.
    findings = {
        place: _frequent_spellings(
            (
                label.text
                for image in images
                if image.place == place
                for label in (*(finding.label for finding in image.findings), *image.absent)
            ),
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


def _frequent_spellings(texts: Iterable[str], key: Callable[[str], str]) -> dict[str, str]:
    """Map each text to the most frequent text with the same key (ties: alphabetical order)."""
    counts = Counter(texts)
    spellings: dict[str, str] = {}
    for text, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        spellings.setdefault(key(text), text)
    return {text: spellings[key(text)] for text in counts}


def _spelling_key(text: str, *kinds: str) -> str:
    """Return the vocabulary's concept of a text, or else its folded words in the singular."""
    term = terms_by_name(*kinds).get(normalize_term(text))
    return term.concept if term else " ".join(map(singular, normalize_term(text).split()))


def _collect_facts(images: Sequence[ProbedImage]) -> dict[tuple[str, str], list[Fact]]:
    """Collect the facts of all images, grouped by what is balanced together.

    Modalities, organs and findings are balanced over all images, positions over each finding on
    images of the same organ and modality. Returns (prefix of `qa_type`, group) -> facts.
    """
    modalities, organs = (
        sorted({image.modality for image in images}),
        sorted({image.organ for image in images}),
    )
    # A question about something absent only names what another image of the table shows.
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
    """Return True if an image is known not to show a finding.

    It is absent if the image's row says so, if one of the image's findings excludes it
    (`terms.csv`), or if it is a finding of an organ that the image does not show.

    Args:
        image: the image.
        label: the finding.
    """
    if any(labels_may_coincide(finding.label, label) for finding in image.findings):
        return False
    if label.text in {absent.text for absent in image.absent}:
        return True
    if label.term is None or parse_finding(label.text).term != label.term:
        return False  # without its organ, a word such as "mass" means something else on another image
    if cannot_show(image.place, label.term):
        return True
    return any(
        finding.label.term and not finding.label.side and not label.side
        and mutually_exclusive(finding.label.term.concept, label.term.concept)
        for finding in image.findings
    )  # fmt: skip


def _finding_excludes_position(image: ProbedImage, index: int, position: str) -> bool:
    """Return True if the finding at `index`, and any that may be the same, is not at `position`."""
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
        # Boxes show exactly which parts of the image are free of a finding. Positions in words only
        # exclude their opposites.
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
    """Choose the finding to ask about on each normal image (answer no; the paper's table 19).

    Candidates are the findings of its organ and modality that the vocabulary knows as abnormal. A
    label that only the table knows may be a device or a variant, which a normal image can show.
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


def _balanced_abnormality_answers(images: Sequence[ProbedImage], seed: int) -> dict[str, str]:
    """Choose the images of the questions about abnormality (section 3.3); return their answers.

    Per organ and modality, these are equally many normal and abnormal images. An image counts as
    abnormal if the vocabulary knows one of its findings; a label that only the table knows may not
    be an abnormality (a device, a variant, a grade).
    """
    names: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"no": [], "yes": []})
    for image in sorted(images, key=lambda image: seeded_hash(f"abnormality {image.image}", seed)):
        if image.is_normal or any(map(_is_abnormality, image.findings)):
            names[image.image_type]["no" if image.is_normal else "yes"].append(image.image)
    return {
        name: answer
        for names_by_answer in names.values()
        for answer, answer_names in names_by_answer.items()
        for name in answer_names[: min(map(len, names_by_answer.values()))]
    }


def _is_abnormality(finding: Finding) -> bool:
    """Return True if the vocabulary lists the label as a finding."""
    return finding.label.term is not None and finding.label.term.kind == "finding"
