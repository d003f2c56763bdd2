"""Makes a HALT-MedVQA-style set from a user's own questions: FAKE, NONE and SWAP (HALT-MedVQA, section 2), in the authors' files.

NONE: the right option is replaced by "None of the above". SWAP: the image is replaced by an unrelated one, and "I do not know" is
right. FAKE: a question that no image can answer, with "I do not know" right; the paper had a language model write these, in three
kinds (generic, about a made-up patient, medically false), without printing its prompt: `FAKE_PROMPT` is ours.
The right letter is balanced in all three: in the authors' NONE file always "C" scores 37%.

See also: reading the questions (`custom_questions.py`), asking (`question_writing.py`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curation.custom_sets.custom_questions import CustomQuestion, Fake, shuffled
from curation.writing.question_writing import Asking, Writer, ask
from dataset_builders.errors import BadInput
from dataset_builders.journal import read_journal
from dataset_builders.schema import LETTERS

NONE, UNKNOWN = "None of the above", "I do not know"
KINDS = {
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
_GIVES_UP = re.compile(
    r"\b(?:none of the above|all of the above|not know|unknown|can ?not be|can't be|impossible|insufficient|not possible|no answer)\b",
    re.IGNORECASE,
)


def none_of_the_above(questions: Sequence[CustomQuestion], seed: int) -> list[dict[str, str]]:
    """pmc_vqa_nota1K.json's entries: the right option replaced. Questions that have such an option already are left out."""
    kept = [q for q in questions if not any("none of the above" in option.casefold() for option in q.options)]
    entries: list[tuple[int, dict[str, str]]] = []
    for number, question, place in _placed(kept, seed, [len(q.options) for q in kept]):
        others = [option for position, option in enumerate(question.options) if position != question.answer]
        options = [*others[:place], NONE, *others[place:]]
        entry = {"img": question.image, "question": question.question}
        entry |= {f"choice_{letter}": f"{letter}: {option}" for letter, option in zip(LETTERS, options, strict=False)}
        entries.append((number, entry | {"answer": LETTERS[place]}))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def swapped(questions: Sequence[CustomQuestion], groups: dict[str, str], seed: int) -> dict[str, dict[str, Any]]:
    """swap_img_shuffle.json's entries: another image, drawn evenly from those that are unrelated.

    Unrelated: of another `kind` than the question's own image where kinds are given, and of another group (patient, figure). Questions
    for which there is none, or which offer "I do not know" already, are left out.
    """
    kinds: dict[str, set[str]] = {}
    for question in questions:
        kinds.setdefault(question.image, set()).add(question.kind)
    waiting = sorted(kinds, key=lambda name: shuffled(f"swap {name}", seed))  # who was drawn goes to the end
    kept = []
    for question in sorted(questions, key=lambda q: shuffled(f"swap {q.image} {q.question}", seed)):
        if _offers_unknown(question.options):
            continue
        group = groups.get(question.image, "")
        for place, image in enumerate(waiting):
            same_kind = question.kind != "" and question.kind in kinds[image]
            same_group = group != "" and groups.get(image, "") == group
            if image != question.image and not same_kind and not same_group:
                waiting.append(waiting.pop(place))
                kept.append((image, question))
                break
    entries = {}
    for number, (image, question), place in _placed(kept, seed, [len(q.options) + 1 for _, q in kept]):
        entries[str(number)] = _unknown_entry(question.question, question.options, place, image) | {
            "original_img": question.image
        }
    return dict(sorted(entries.items(), key=lambda pair: int(pair[0])))


def fake(fakes: Sequence[Fake], images: Sequence[str], seed: int) -> dict[str, dict[str, Any]]:
    """fake_qa_shuffle.json's entries: each fake question with one of the user's images."""
    order = sorted(images, key=lambda name: shuffled(f"fake {name}", seed))
    entries = {}
    for number, item, place in _placed(list(fakes), seed, [len(item.options) + 1 for item in fakes]):
        entries[str(number)] = _unknown_entry(item.question, item.options, place, order[number % len(order)])
    return dict(sorted(entries.items(), key=lambda pair: int(pair[0])))


def _placed(items: list[Any], seed: int, counts: list[int]) -> list[tuple[int, Any, int]]:
    """(number, item, position of the right option): each position as often as any other among items with as many options."""
    turn: Counter[int] = Counter()
    placed = []
    for number in sorted(range(len(items)), key=lambda at: shuffled(f"place {at}", seed)):
        count = counts[number]
        placed.append((number, items[number], turn[count] % count))
        turn[count] += 1
    return placed


def renamed(entries: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The entries of the three files with the images' names in the set."""

    def of(entry: dict[str, Any]) -> dict[str, Any]:
        return {key: names[value] if key in ("img", "original_img") else value for key, value in entry.items()}

    return {
        scenario: [of(entry) for entry in made]
        if isinstance(made, list)
        else {key: of(entry) for key, entry in made.items()}
        for scenario, made in entries.items()
    }


def _offers_unknown(options: Sequence[str]) -> bool:
    return any(re.search(r"\bdo(?: not|n't) know\b", option, re.IGNORECASE) for option in options)


def _unknown_entry(question: str, options: Sequence[str], place: int, image: str) -> dict[str, Any]:
    given = [*options[:place], UNKNOWN, *options[place:]]
    letters = dict(zip(LETTERS, given, strict=False))
    return {"question": question, "option": letters, "answer": UNKNOWN, "answer_id": LETTERS[place], "img": image}


def read_fake(reply: str) -> tuple[Fake | None, str]:
    """The question in a reply to `FAKE_PROMPT`, or None with the reason."""
    fields: dict[str, str] = {}
    for line in reply.splitlines():
        found = re.match(r"^[\s*_#>-]*(question|[A-Z])\s*[*_]*\s*[:.)]\s*[*_]*\s*(\S.*?)\s*[*_]*$", line, re.IGNORECASE)
        if found and found[1].casefold() not in fields:
            fields[found[1].casefold()] = found[2]
    options = tuple(fields[letter] for letter in "abcdefghij" if letter in fields)
    if "question" not in fields or len(options) != 4 or not all(letter in fields for letter in "abcd"):
        return None, "no question with four options"
    if len({option.casefold() for option in options}) < 4:
        return None, "two options read the same"
    if any(_GIVES_UP.search(option) for option in options):
        return None, "an option gives up"
    return Fake(fields["question"], options), ""


def write_fakes(
    count: int, model: Writer, journal: Path, asking: Asking, modality: str = "medical image", quiet: bool | None = None
) -> list[Fake]:
    """Have a language model write `count` different fake questions, the three kinds in turn; replies are kept in `journal`.

    Raises BadInput where the model gives fewer after all tries.
    """
    if count < 1:
        raise BadInput(f"--fakes {count}: give a whole number from 1.")
    good: dict[int, Fake] = {}
    why: Counter[str] = Counter()
    kinds = list(KINDS.values())

    def take(entry: dict[str, Any]) -> None:
        number = int(json.loads(entry["id"])[0])
        found, wrong = read_fake(entry["reply"]) if entry["status"] == "answered" else (None, entry["status"])
        if found and any(found.question.casefold() == other.question.casefold() for other in good.values()):
            found, wrong = None, "written before"
        if found and number < count:
            good.setdefault(number, found)
        elif wrong:
            why[wrong] += 1

    def key(number: int, sample: int) -> str:
        return json.dumps([number, sample, model.name, modality])

    journal.parent.mkdir(parents=True, exist_ok=True)
    known = {entry["id"]: entry for entry in read_journal(journal) if entry["status"] != "failed"}
    for sample in range(asking.tries):
        wanted = [number for number in range(count) if number not in good]
        for number in wanted:
            if key(number, sample) in known:
                take(known[key(number, sample)])
        todo = {
            # The number makes servers that remember their replies write another one.
            key(number, sample): FAKE_PROMPT.format(modality=modality, kind=kinds[number % 3])
            + f"\n(Variation {number + 1}.)"
            for number in wanted
            if number not in good and key(number, sample) not in known
        }
        if todo:
            for entry in ask(model, todo, sample, asking, journal, f"writing fake questions (try {sample + 1})", quiet):
                take(entry)
    if len(good) < count:
        reasons = ", ".join(f"{reason}: {times}" for reason, times in why.most_common())
        raise BadInput(
            f"--fakes {count}: only {len(good)} questions could be used ({reasons}). Run it again, or ask for fewer."
        )
    return [good[number] for number in range(count)]
