"""Build a HALT-MedVQA-style set from a user's own questions, in the authors' file formats.

The three scenarios (HALT-MedVQA, section 2):

    NONE    the correct option is replaced by "None of the above"
    SWAP    the image is replaced by an unrelated one, so "I do not know" is correct
    FAKE    no image can answer the question, so "I do not know" is correct

The authors had a language model write the FAKE questions, of three kinds (generic, about a made-up
patient, medically false). They did not publish their prompt; `FAKE_PROMPT` is ours.

These sets differ from the authors' in two ways. The letters of the correct options are balanced in
all three scenarios, whereas always answering "C" scores 37% on the authors' NONE file. And each
question has a control, which offers the same way out ("None of the above" or "I do not know") but
has a correct answer. Always giving up therefore scores 50%, whereas it is always correct in the
authors' files.

See also: whether an option may be replaced (`custom_questions.py`), requests to the model
(`writing/asking.py`).
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curation.custom_sets.custom_questions import (
    GENERIC_TOPIC,
    CustomQuestion,
    FakeQuestion,
    asks_for_absence,
    first_reason,
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
"""Suffix of the keys of controls (of their `entry_id` in the NONE file, which is a list)."""
CONTROLS_NOTE_START = "Controls"
"""First word of the sentence about controls on the dataset card."""
MAX_HASH_DISTANCE = 6
"""Maximum Hamming distance between the 64-bit perceptual hashes of near-duplicates (as in `medprobe
curate pairs`).
"""
FAKE_KINDS = {
    "generic": "It is set in an invented, impossible world, so that no medical image can answer it.",
    "patient": "It rests on the story of a patient (complaints, past treatment, laboratory values) that no image can show.",
    "medical": "It takes a medical statement for granted that is plainly false.",
}
"""The three kinds of fake questions of the paper's section 2, in our words."""
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
    """Patients and perceptual hashes of images, which tell whether two images are related.

    Attributes:
        groups: image -> its patient or article.
        hashes: image -> its perceptual hash (64 bits).
    """

    groups: Mapping[str, str]
    hashes: Mapping[str, int]

    def are_related(self, image_a: str, image_b: str) -> bool:
        """Return True if two images are the same, near-duplicates, or of one group."""
        group = self.groups.get(image_a, "")
        if image_a == image_b or (group != "" and self.groups.get(image_b, "") == group):
            return True
        return {image_a, image_b} <= self.hashes.keys() and (
            self.hashes[image_a] ^ self.hashes[image_b]
        ).bit_count() <= MAX_HASH_DISTANCE


def build_none_entries(
    questions: Sequence[CustomQuestion],
    seed: int,
) -> tuple[list[dict[str, str]], Counter[str]]:
    """Build the entries of pmc_vqa_nota1K.json: "None of the above" replaces the correct option.

    A question is left out if an option refers to other options, offers a way out, or may mean the
    same as the correct option, since "None of the above" would then not be correct.

    The control of each question has the same number of options. It keeps the correct option, and
    "None of the above" replaces one of the wrong ones.

    Args:
        questions: the user's questions.
        seed: seed of the order of the options.

    Returns:
        The entries, controls included, and the number of questions left out by reason.
    """
    left_out: Counter[str] = Counter()
    usable = []
    for question in questions:
        reason = _exclusion_reason(question) or first_reason(
            (not has_single_answer(question), "another option may also be correct")
        )
        if reason:
            left_out[reason] += 1
        else:
            usable.append(question)

    entries = []
    for number, question, slot, _ in _balance_positions(usable, [len(q.options) for q in usable], seed):
        control_wrong = question.wrong_options
        dropped = seeded_hash(f"control {question.image} {question.question}", seed) % len(control_wrong)
        control_wrong[dropped] = NONE_OPTION
        # Shuffle the wrong options, so that "None of the above" may appear at any position among
        # them.
        control_wrong.sort(key=lambda option: seeded_hash(f"{question.question} {option}", seed))
        for key, correct, other_options in (
            (f"{number}", NONE_OPTION, question.wrong_options),
            (f"{number}{CONTROL_SUFFIX}", question.correct_option, control_wrong),
        ):
            letters = _letter_options(other_options, correct, slot)
            entries.append(
                {"entry_id": key, "img": question.image, "question": question.question}
                | {f"choice_{letter}": f"{letter}: {option}" for letter, option in letters.items()}
                | {"answer": LETTERS[slot]}
            )
    return entries, left_out


def _exclusion_reason(question: CustomQuestion) -> str:
    """Return why a question's options cannot be moved or replaced; "" if they can."""
    return first_reason(
        (any(map(refers_to_options, question.options)), "an option refers to other options"),
        (has_abstention(question.options), "an option declines to answer or covers the remaining cases"),
    )


def build_swap_entries(
    questions: Sequence[CustomQuestion], relations: ImageRelations, seed: int
) -> tuple[dict[str, dict[str, Any]], Counter[str]]:
    """Build the entries of swap_img_shuffle.json: questions with an image that cannot answer them.

    A question gets a new image only if
      - its text names an organ that the new image does not show ("Is a fracture visible?" fits any
      image),
      - an image of its own organ (`kind`) cannot also show the organ of the new image,
      - the two images are unrelated,
      - the new image does not have the same question,
      - no option names what the new image may show.

    Questions are left out if an option is correct for an unrelated image (no, normal), if any
    image answers them (modality, plane), if they ask for what is absent, or if they already offer
    "I do not know". The control is the same question with the same options and its own image.

    Args:
        questions: the user's questions.
        relations: groups and hashes of their images.
        seed: seed of the choice of images and of the order of the options.

    Returns:
        Key -> entry, controls included, and the number of questions left out by reason.
    """
    kinds: dict[str, set[str]] = {}
    image_questions: dict[str, set[str]] = {}
    for question in questions:
        # The questions about an image may state different kinds: keep them all.
        kinds.setdefault(question.image, set()).add(question.kind)
        image_questions.setdefault(question.image, set()).add(question.question.casefold())

    def can_replace(question: CustomQuestion, image: str) -> bool:
        image_regions = [find_regions(kind) for kind in kinds[image]]
        return (
            all(regions_disjoint(find_regions(question.kind), regions) for regions in image_regions)
            and all(regions_disjoint(find_regions(question.question), regions) for regions in image_regions)
            and not any(_may_show(kind, option) for kind in kinds[image] for option in question.options)
            and question.question.casefold() not in image_questions[image]
            and not relations.are_related(question.image, image)
        )

    # A used image moves to the end of the queue, so that all images are used about equally often.
    image_queue = sorted(kinds, key=lambda name: seeded_hash(f"swap {name}", seed))
    left_out: Counter[str] = Counter()
    swaps = []
    for question in sorted(
        questions,
        key=lambda q: seeded_hash(f"swap {q.image} {q.question}", seed),
    ):
        reason = _swap_exclusion_reason(question)
        image = "" if reason else next((image for image in image_queue if can_replace(question, image)), "")
        if not image:
            left_out[reason or "no unrelated image"] += 1
            continue
        image_queue.remove(image)
        image_queue.append(image)
        swaps.append((image, question))

    entries: dict[str, dict[str, Any]] = {}
    option_counts = [len(question.options) + 1 for _, question in swaps]
    for number, (image, question), slot, rounds in _balance_positions(swaps, option_counts, seed):
        # Both the position of "I do not know" and its distance to the control's correct option are
        # balanced.
        correct_slot = (slot + 1 + rounds % len(question.options)) % option_counts[number]
        options = question.wrong_options
        options.insert(correct_slot - (slot < correct_slot), question.correct_option)
        entry = _build_entry(question.question, options, UNKNOWN_OPTION, slot, image)
        entry["original_img"] = question.image
        entries[f"{number}"] = entry
        entries[f"{number}{CONTROL_SUFFIX}"] = entry | {
            "img": question.image,
            "answer": question.correct_option,
            "answer_id": LETTERS[correct_slot],
        }
    return entries, left_out


def _swap_exclusion_reason(question: CustomQuestion) -> str:
    """Return why a question cannot be asked about another image; "" if it can."""
    regions, image_regions = find_regions(question.question), find_regions(question.kind)
    is_generic = GENERIC_TOPIC.search(" ".join((question.question, *question.options))) is not None
    return _exclusion_reason(question) or first_reason(
        (not image_regions, "the organ of its image is unknown"),
        (
            not regions or regions_disjoint(regions, image_regions),
            "it names no organ of its image, so another image may answer it",
        ),
        (fits_any_image(question.options), "an option is correct for any image"),
        (asks_for_absence(question.question), "it asks for what is absent or normal"),
        (is_generic, "any image answers it"),
    )


def _may_show(kind: str, option: str) -> bool:
    """Return True if an option names an organ that an image of `kind` shows, or one next to it."""
    option_regions = find_regions(option)
    is_near = bool(option_regions) and not regions_disjoint(find_regions(kind), option_regions)
    kind_words, option_words = (set(map(singular, normalize_term(text).split())) for text in (kind, option))
    return is_near or bool(kind_words & option_words)


def build_fake_entries(
    fakes: Sequence[FakeQuestion],
    images: Sequence[str],
    seed: int,
    questions: Sequence[CustomQuestion] = (),
) -> dict[str, dict[str, Any]]:
    """Build the entries of fake_qa_shuffle.json: each fake question with one of the user's images.

    Args:
        fakes: the fake questions.
        images: the user's images.
        seed: seed of the choice of images and of the order of the options.
        questions: real questions for the controls, which also offer "I do not know".

    Returns:
        Key -> entry, controls included.
    """
    shuffled_images = sorted(images, key=lambda name: seeded_hash(f"fake {name}", seed))
    controls = sorted(
        (q for q in questions if not _exclusion_reason(q)),
        key=lambda q: seeded_hash(f"real {q.image} {q.question}", seed),
    )[: len(fakes)]
    control_entries = {}
    for number, question, slot, _ in _balance_positions(controls, [len(q.options) + 1 for q in controls], seed):
        options = question.wrong_options
        options.insert(seeded_hash(f"unknown {question.question}", seed) % len(question.options), UNKNOWN_OPTION)
        control_entries[number] = _build_entry(
            question.question, options, question.correct_option, slot, question.image
        )
    entries = {}
    for number, fake, slot, _ in _balance_positions(fakes, [len(fake.options) + 1 for fake in fakes], seed):
        image = shuffled_images[number % len(shuffled_images)]
        entries[f"{number}"] = _build_entry(fake.question, fake.options, UNKNOWN_OPTION, slot, image)
        if number in control_entries:
            entries[f"{number}{CONTROL_SUFFIX}"] = control_entries[number]
    return entries


def describe_controls(scenarios: Mapping[str, Any]) -> str:
    """Format the dataset card's sentence about the score of always giving up.

    Args:
        scenarios: scenario -> the entries of its file (a list for NONE, else an object).

    Returns:
        A sentence that begins with `CONTROLS_NOTE_START`.
    """
    keys = [
        str(key)
        for entries in scenarios.values()
        for key in (entries if isinstance(entries, dict) else (entry.get("entry_id", "") for entry in entries))
    ]
    share = 100 * sum(key.endswith(CONTROL_SUFFIX) for key in keys) / len(keys)
    offer = f"{share:.1f} % of the questions offer the same way out but have an answer"
    return f"{CONTROLS_NOTE_START}: {offer}. Always giving up scores {100 - share:.1f} %."


def _balance_positions(
    questions: Sequence[Any], option_counts: Sequence[int], seed: int
) -> list[tuple[int, Any, int, int]]:
    """Choose the position of each question's correct option, with all positions equally frequent.

    Questions with the same number of options take turns in random order, so positions are balanced
    among them. Returns (number, question, position, how often the positions were used up before).
    """
    turns: Counter[int] = Counter()
    placed = []
    for number in sorted(range(len(questions)), key=lambda index: seeded_hash(f"place {index}", seed)):
        count = option_counts[number]
        rounds, slot = divmod(turns[count], count)
        turns[count] += 1
        placed.append((number, questions[number], slot, rounds))
    return sorted(placed, key=lambda place: place[0])


def _letter_options(other_options: Sequence[str], correct: str, slot: int) -> dict[str, str]:
    """Map letters to options, with the correct option at position `slot`."""
    return dict(zip(LETTERS, [*other_options[:slot], correct, *other_options[slot:]], strict=False))


def _build_entry(question: str, other_options: Sequence[str], correct: str, slot: int, image: str) -> dict[str, Any]:
    """Build an entry of the FAKE or SWAP file, with the correct option at position `slot`."""
    return {
        "question": question,
        "option": _letter_options(other_options, correct, slot),
        "answer": correct,
        "answer_id": LETTERS[slot],
        "img": image,
    }


def parse_fake_question(reply: str) -> FakeQuestion | None:
    """Parse a reply to `FAKE_PROMPT`.

    Returns None unless it has a question and four different options, none of which gives up.
    """
    fields: dict[str, str] = {}
    for line in reply.splitlines():
        match = re.match(
            r"^[\s*_#>-]*(question|[A-D])\s*[*_]*\s*[:.)]\s*[*_]*\s*(\S.*?)\s*[*_]*$",
            line,
            re.IGNORECASE,
        )
        if match:
            fields.setdefault(match[1].casefold(), match[2])
    options = tuple(fields.get(letter, "") for letter in "abcd")
    is_valid = "question" in fields and all(options) and len(set(map(str.casefold, options))) == 4
    return FakeQuestion(fields["question"], options) if is_valid and not has_abstention(options) else None


def generate_fake_questions(
    count: int, model: Writer, journal: Path, asking: AskSettings, modality: str = "medical image"
) -> list[FakeQuestion]:
    """Have a language model write fake questions, all different, with the three kinds in turn.

    Args:
        count: number of questions.
        model: the language model.
        journal: file that stores the replies; a repeated call reuses them.
        asking: settings of the requests.
        modality: kind of the images, for the prompt.

    Returns:
        `count` questions.

    Raises:
        BadInput: the model wrote fewer valid questions in all its tries.
    """
    kinds = list(FAKE_KINDS.values())
    prompts = {
        # The number makes each prompt different, so that a server's cache does not repeat a
        # question.
        json.dumps([number, model.name, modality]): FAKE_PROMPT.format(
            modality=modality,
            kind=kinds[number % 3],
        )
        + f"\n(Variation {number + 1}.)"
        for number in range(count)
    }
    seen_questions: set[str] = set()

    def parse_new(_: str, entry: dict[str, Any]) -> FakeQuestion | None:
        fake = parse_fake_question(entry["reply"])
        # A repeated question is refused, so the model is asked again.
        if fake is None or fake.question.casefold() in seen_questions:
            return None
        seen_questions.add(fake.question.casefold())
        return fake

    questions, _ = ask_until_valid(model, prompts, parse_new, asking, journal, "writing fake questions")
    if len(questions) < count:
        raise BadInput(
            f"--fakes {count}: only {len(questions)} questions could be used. Run it again, or ask for fewer."
        )
    return [questions[key] for key in prompts]
