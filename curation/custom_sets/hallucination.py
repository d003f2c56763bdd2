"""Make a HALT-MedVQA-style set from a user's own questions: FAKE, NONE and SWAP (HALT-MedVQA, section 2), in the authors' files.

NONE: the correct option is replaced by "None of the above". SWAP: the image is replaced by an unrelated one, and "I do not know" is
right. FAKE: a question that no image can answer, with "I do not know" right; the paper had a language model write these, in three
kinds (generic, about a made-up patient, medically false), without printing its prompt: `FAKE_PROMPT` is ours.
The correct letter is balanced in all three: in the authors' NONE file always "C" scores 37%. In theirs giving up is always right; here a
control stands beside each question, which offers the same way out and has an answer, so that always giving up scores 50%.

See also: what options say of one another (`option_texts.py`), asking (`writing/asking.py`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curation.custom_sets.custom_questions import CustomQuestion, FakeQuestion
from curation.custom_sets.option_texts import (
    GENERIC_TOPIC,
    asks_for_absence,
    fits_any_image,
    has_abstention,
    has_single_answer,
    refers_to_options,
)
from curation.custom_sets.probing import seeded_hash
from curation.writing.asking import AskSettings, Writer, ask_until_valid
from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from dataset_builders.terms import find_regions, normalize_term, regions_disjoint, singular

NONE_OPTION, UNKNOWN_OPTION = "None of the above", "I do not know"
CONTROL_SUFFIX = "c"
"""Suffix of the keys of controls (in the NONE file, a list: of their `entry_id`)."""
CONTROLS_NOTE_START = "Controls"
"""How the sentence of the card begins that says how many questions are controls."""
MAX_HASH_DISTANCE = 6
"""Bits of 64 in which the perceptual hashes of near-duplicates differ at most (as `medprobe curate pairs`)."""
FAKE_KINDS = {
    "generic": "It is set in an invented, impossible world, so that no medical image can answer it.",
    "patient": "It rests on the story of a patient (complaints, past treatment, laboratory values) that no image can show.",
    "medical": "It takes a medical statement for granted that is plainly false.",
}
"""Section 2's three kinds of fake questions, in our words."""
FAKE_PROMPT = """Write one multiple-choice question that pretends to be about a {modality}. {kind}
Give four different answer options that sound as if one of them could be right. No option may say that the question is wrong.
Answer in this format and with nothing else:
Question: <question>
A: <option>
B: <option>
C: <option>
D: <option>"""


@dataclass(frozen=True)
class ImageRelations:
    """Properties of the images that decide which are unrelated: patient or article, perceptual hash (64 bits)."""

    groups: Mapping[str, str]
    hashes: Mapping[str, int]

    def same(self, one: str, other: str) -> bool:
        """True if two images are one, nearly one, or of one group."""
        group = self.groups.get(one, "")
        if one == other or (group != "" and self.groups.get(other, "") == group):
            return True
        return {one, other} <= self.hashes.keys() and (
            self.hashes[one] ^ self.hashes[other]
        ).bit_count() <= MAX_HASH_DISTANCE


def build_none_entries(questions: Sequence[CustomQuestion], seed: int) -> tuple[list[dict[str, str]], Counter[str]]:
    """pmc_vqa_nota1K.json's entries, the correct option replaced; and why questions were left out: an option speaks of others, offers a way
    out already, or may mean what the right one does, so that "None of the above" would not be right.

    A control beside each has as many options, the right one and "None of the above" among them: one wrong option made room.
    """
    left_out: Counter[str] = Counter()
    kept = []
    for question in questions:
        why = _exclusion_reason(question) or ("" if has_single_answer(question) else "another option may be right, too")
        left_out[why] += bool(why)
        kept += [] if why else [question]
    entries: dict[str, dict[str, str]] = {}
    for number, question, slot in _balance_positions(kept, seed, [len(q.options) for q in kept]):
        others = question.wrong
        dropped = seeded_hash(f"control {question.image} {question.question}", seed) % len(others)
        shown = [NONE_OPTION, *(option for at, option in enumerate(others) if at != dropped)]
        shown.sort(key=lambda option: seeded_hash(f"{question.question} {option}", seed))
        for key, right, rest in (
            (f"{number}", NONE_OPTION, others),
            (f"{number}{CONTROL_SUFFIX}", question.right, shown),
        ):
            letters = zip(LETTERS, [*rest[:slot], right, *rest[slot:]], strict=False)
            entries[key] = {"entry_id": key, "img": question.image, "question": question.question}
            entries[key] |= {f"choice_{letter}": f"{letter}: {option}" for letter, option in letters}
            entries[key] |= {"answer": LETTERS[slot]}
    return list(_sort_by_number(entries).values()), +left_out


def _exclusion_reason(question: CustomQuestion) -> str:
    """Why a question's options cannot be moved, replaced or joined by a way out; "" where they can."""
    if any(map(refers_to_options, question.options)):
        return "an option speaks of other options"
    return "an option declines, or fits what the others leave" if has_abstention(question.options) else ""


def build_swap_entries(
    questions: Sequence[CustomQuestion], about: ImageRelations, seed: int
) -> tuple[dict[str, dict[str, Any]], Counter[str]]:
    """swap_img_shuffle.json's entries, each question with an image that cannot answer it, drawn evenly; and why others were left out.

    A question is swapped only where its words name an organ that the new image does not have ("Is a fracture visible?" can be asked of
    any), what the new image shows (`kind`: the organ, say) is ruled out by what the question's own image shows, the new one is no
    (near-)duplicate of that and not of its group, was not asked the same, and no option names what it may show. Left out are questions
    with an option that is right of an unrelated image (no, normal), those that any image answers (its modality, its plane), those that
    ask for what is absent, and those that offer "I do not know" already.
    A control beside each is the same question with the same options and its own image.
    """
    kinds: dict[str, set[str]] = {}
    texts: dict[str, set[str]] = {}
    for question in questions:
        kinds.setdefault(question.image, set()).add(question.kind)
        texts.setdefault(question.image, set()).add(question.question.casefold())

    def fits(question: CustomQuestion, image: str) -> bool:
        there = [find_regions(kind) for kind in kinds[image]]
        return (
            all(regions_disjoint(find_regions(question.kind), shown) for shown in there)
            and all(regions_disjoint(find_regions(question.question), shown) for shown in there)
            and not any(_may_show(kind, option) for kind in kinds[image] for option in question.options)
            and question.question.casefold() not in texts[image]
            and not about.same(question.image, image)
        )

    waiting = sorted(kinds, key=lambda name: seeded_hash(f"swap {name}", seed))  # who was drawn goes to the end
    left_out: Counter[str] = Counter()
    kept = []
    for question in sorted(questions, key=lambda q: seeded_hash(f"swap {q.image} {q.question}", seed)):
        why = _swap_exclusion_reason(question)
        image = "" if why else next((image for image in waiting if fits(question, image)), "")
        if not image:
            left_out[why or "no unrelated image"] += 1
            continue
        waiting.remove(image)
        waiting.append(image)
        kept.append((image, question))
    entries = {}
    turn: Counter[int] = Counter()
    for number, (image, question), slot in _balance_positions(kept, seed, [len(q.options) + 1 for _, q in kept]):
        # Where "I do not know" stands is balanced, and so is how far from it the control's right option stands.
        count = len(question.options) + 1
        right = (slot + 1 + turn[count] // count % (count - 1)) % count
        turn[count] += 1
        options = question.wrong
        options.insert(right - (slot < right), question.right)
        entry = _build_entry(question.question, options, UNKNOWN_OPTION, slot, image) | {"original_img": question.image}
        entries[str(number)] = entry
        true = {"img": question.image, "answer": question.right, "answer_id": LETTERS[right]}
        entries[f"{number}{CONTROL_SUFFIX}"] = entry | true
    return _sort_by_number(entries), left_out


def _swap_exclusion_reason(question: CustomQuestion) -> str:
    if why := _exclusion_reason(question):
        return why
    if not find_regions(question.kind):
        return "what its image shows is not known"
    named = find_regions(question.question)
    if not named or regions_disjoint(named, find_regions(question.kind)):
        return "it names no organ of its image, so another image may answer it"
    if fits_any_image(question.options):
        return "an option is right of any image"
    if asks_for_absence(question.question):
        return "it asks for what is absent or normal"
    return "any image answers it" if GENERIC_TOPIC.search(" ".join((question.question, *question.options))) else ""


def _may_show(there: str, option: str) -> bool:
    """True where an option names what a picture of `there` may show: an organ of its region or beside it."""
    named = find_regions(option)
    is_near = bool(named) and not regions_disjoint(find_regions(there), named)
    words, others = (set(map(singular, normalize_term(text).split())) for text in (there, option))
    return is_near or bool(words & others)


def build_fake_entries(
    fakes: Sequence[FakeQuestion], images: Sequence[str], seed: int, questions: Sequence[CustomQuestion] = ()
) -> dict[str, dict[str, Any]]:
    """fake_qa_shuffle.json's entries: each fake question with one of the user's images; beside each, as a control, one of `questions` with
    its own image, that offers "I do not know" too."""
    order = sorted(images, key=lambda name: seeded_hash(f"fake {name}", seed))
    real = sorted(
        (q for q in questions if not _exclusion_reason(q)),
        key=lambda q: seeded_hash(f"real {q.image} {q.question}", seed),
    )
    entries = {}
    for number, item, slot in _balance_positions(list(fakes), seed, [len(item.options) + 1 for item in fakes]):
        entries[str(number)] = _build_entry(
            item.question, item.options, UNKNOWN_OPTION, slot, order[number % len(order)]
        )
    for number, question, slot in _balance_positions(
        real[: len(fakes)], seed, [len(q.options) + 1 for q in real[: len(fakes)]]
    ):
        others = question.wrong
        others.insert(seeded_hash(f"unknown {question.question}", seed) % (len(others) + 1), UNKNOWN_OPTION)
        entries[f"{number}{CONTROL_SUFFIX}"] = _build_entry(
            question.question, others, question.right, slot, question.image
        )
    return _sort_by_number(entries)


def describe_controls(entries: Mapping[str, Any]) -> str:
    """The sentence of the card on what always giving up scores. entries: scenario -> the entries of its file."""
    keys = [
        str(key)
        for made in entries.values()
        for key in (made if isinstance(made, dict) else (e.get("entry_id", "") for e in made))
    ]
    share = 100 * sum(key.endswith(CONTROL_SUFFIX) for key in keys) / len(keys)
    has = f"{share:.1f} % of the questions offer the same way out and have an answer"
    return f"{CONTROLS_NOTE_START}: {has}. Always giving up scores {100 - share:.1f} %."


def _sort_by_number(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Each control after its question."""
    return dict(sorted(entries.items(), key=lambda item: (int(item[0].removesuffix(CONTROL_SUFFIX)), item[0])))


def _balance_positions(items: list[Any], seed: int, counts: list[int]) -> list[tuple[int, Any, int]]:
    """(number, item, position of the correct option): each position as often as any other among items with as many options."""
    turn: Counter[int] = Counter()
    placed = []
    for number in sorted(range(len(items)), key=lambda at: seeded_hash(f"place {at}", seed)):
        count = counts[number]
        placed.append((number, items[number], turn[count] % count))
        turn[count] += 1
    return placed


def rename_entry_images(entries: Iterable[dict[str, Any]], names: dict[str, str]) -> None:
    """Give the images of entries their names in the set."""
    for entry in entries:
        entry |= {key: names[entry[key]] for key in ("img", "original_img") if key in entry}


def _build_entry(question: str, others: Sequence[str], right: str, slot: int, image: str) -> dict[str, Any]:
    letters = dict(zip(LETTERS, [*others[:slot], right, *others[slot:]], strict=False))
    return {"question": question, "option": letters, "answer": right, "answer_id": LETTERS[slot], "img": image}


def parse_fake_question(reply: str) -> FakeQuestion | None:
    """The question in a reply to `FAKE_PROMPT`; None where it has no four different options, or one that gives up."""
    fields: dict[str, str] = {}
    for line in reply.splitlines():
        found = re.match(r"^[\s*_#>-]*(question|[A-D])\s*[*_]*\s*[:.)]\s*[*_]*\s*(\S.*?)\s*[*_]*$", line, re.IGNORECASE)
        if found:
            fields.setdefault(found[1].casefold(), found[2])
    options = tuple(fields.get(letter, "") for letter in "abcd")
    is_good = "question" in fields and all(options) and len(set(map(str.casefold, options))) == 4
    return FakeQuestion(fields["question"], options) if is_good and not has_abstention(options) else None


def generate_fake_questions(
    count: int, model: Writer, journal: Path, asking: AskSettings, modality: str = "medical image"
) -> list[FakeQuestion]:
    """Have a language model write `count` different fake questions, the three kinds in turn; replies are kept in `journal`.

    Raises BadInput if the model gives fewer after all tries.
    """
    kinds = list(FAKE_KINDS.values())
    prompts = {
        # The number makes servers that remember their replies write another one.
        json.dumps([number, model.name, modality]): FAKE_PROMPT.format(modality=modality, kind=kinds[number % 3])
        + f"\n(Variation {number + 1}.)"
        for number in range(count)
    }
    written: set[str] = set()

    def read(_: str, entry: dict[str, Any]) -> FakeQuestion | None:
        found = parse_fake_question(entry["reply"])
        if found is None or found.question.casefold() in written:
            return None
        written.add(found.question.casefold())
        return found

    good = ask_until_valid(model, prompts, read, asking, journal, "writing fake questions").good
    if len(good) < count:
        raise BadInput(f"--fakes {count}: only {len(good)} questions could be used. Run it again, or ask for fewer.")
    return [good[key] for key in prompts]
