"""Build requests: prompt, system message, images, examples, option order, candidates.

A question is shown its own images (`real`), none (`withheld`), grey ones (`blank`), or those of
another case (`swapped`).

See also: selecting the questions (`records/selection.py`), sending the requests (`ask.py`), mapping
a choice among rotated options back (`records/request.py`), measuring how much of a score depends on
the images (`store/sight.py`).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError, encode_png
from dataset_builders.images.picture import make_picture
from dataset_builders.schema import LETTERS, row_image_ids
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.benchmarks.spec import Prompt
from eval_harness.records.request import Form, Request, Scoring, Shot, get_form, rotate_options, rotation
from eval_harness.records.result import RunRequest
from eval_harness.records.selection import Selection

Row = dict[str, Any]

Instance = tuple[int, int]
"""A question in one of its samples: (row of the question, sample number)."""

_SCORING: dict[str, Scoring] = {"gd": "next_token", "ps": "sequence", "ps_official": "sequence_official"}

MAX_REQUESTS_PER_BATCH = 256
"""Requests passed to a back end together; the number limits the memory for their images."""


@dataclass(frozen=True)
class RequestMaker:
    """Build the requests of a run, in the conversation form that the run's request names."""

    request: RunRequest
    family: str
    shots: tuple[tuple[Row, tuple[bytes, ...]], ...] = ()

    def make(self, row: Row, sample: int, images: Sequence[bytes], shown_ids: tuple[str, ...] = ()) -> Request:
        """Build the request for one question and sample.

        Args:
            row: the question (a row of config `questions`).
            sample: sample number, from 0.
            images: encoded images to show; empty if they are withheld.
            shown_ids: ids of `images` if they belong to another case.
        """
        method, generation = self.request.method, self.request.generation
        question_type = row["question_type"]
        prompt = get_prompt(self.family, self.request.prompt, question_type, method)
        rotated_by = rotation(sample, len(row["options"])) if self.request.permute else 0
        options = rotate_options(row["options"], rotated_by)
        n_options = len(options)
        # An example about the same case or image would give the answer away.
        examples = [pair for pair in self.shots if not _related(pair[0], row)][: self.request.shots]
        return Request(
            question_id=row["question_id"],
            sample=sample,
            prompt=prompt.render(row["question"], options),
            image=images[0] if images else None,
            more_images=tuple(images[1:]),
            options=tuple(options),
            question_type=question_type,
            answer=tuple((int(position) - rotated_by) % n_options for position in row["answer"]),
            # `gd` compares the likelihoods of a single token.
            max_tokens=1 if method == "gd" else generation["max_tokens"],
            temperature=generation["temperature"],
            seed=generation["seed"],
            system=self.system(prompt, bool(examples)),
            image_first=self.form.image_first,
            shots=tuple(self._shot(example, pictures) for example, pictures in examples),
            candidates=_candidates(method, options, prompt.shows_options),
            scoring=_SCORING.get(method, "next_token"),
            shown=shown_ids,
            question=row["question"],
        )

    @property
    def form(self) -> Form:
        """The run's conversation form; the default form if the model receives no conversation."""
        return get_form(self.request.generation.get("form"))

    def system(self, prompt: Prompt, with_examples: bool) -> str | None:
        """Return the system message: the user's, or else the authors' if the form includes it.

        An introduction to worked examples is added to the user's message and replaces the authors'.
        """
        intro = prompt.intro if with_examples else None
        user_message: str | None = self.request.generation.get("system")
        if user_message is None:
            return intro or (eval_spec(self.family).system if self.form.system else None)
        return "\n\n".join(text for text in (user_message, intro) if text) or None

    def _shot(self, row: Row, images: Sequence[bytes]) -> Shot:
        prompt = get_prompt(self.family, self.request.prompt, row["question_type"], self.request.method)
        options = list(row["options"])
        return Shot(
            prompt.render(row["question"], options),
            prompt.answer_of_shot(options, row["answer"]),
            images[0] if images else None,
            tuple(images[1:]),
        )


def _candidates(method: str, options: Sequence[str], shows_options: bool) -> tuple[str, ...]:
    """Return the texts to score; none if the method generates text.

    For `gd` they are letters if the prompt shows the options, else the capitalized options; for
    `ps` they are the options.
    """
    if method == "gd":
        return tuple(LETTERS[: len(options)]) if shows_options else tuple(_capital(option) for option in options)
    return tuple(option.strip() for option in options) if method in _SCORING else ()


def _capital(text: str) -> str:
    # Not str.capitalize(), which would lower the other letters ("MRI").
    text = text.strip()
    return text[:1].upper() + text[1:]


# --- worked examples ---


def _related(example: Row, row: Row) -> bool:
    return example["case_id"] == row["case_id"] or not set(row_image_ids(example)).isdisjoint(row_image_ids(row))


def example_rows(selection: Selection, count: int) -> list[Row]:
    """Choose the questions that serve as worked examples, the same for the whole run.

    Their order is drawn from their ids, and no two have a case or image in common. There are two
    more than `count`, since a question skips examples of its own case or image. Questions that the
    run asks are preferred; others of the split are used if `--limit` or `--branch` leaves too few.

    Raises:
        BadInput: the split has too few cases with a known answer.
    """
    ids = set(selection.questions["question_id"])
    answered_rows = [row for row in _records(selection.repository.questions(selection.split)) if len(row["answer"])]
    answered_rows.sort(
        key=lambda row: (row["question_id"] not in ids, hashlib.sha256(f"shot\0{row['question_id']}".encode()).digest())
    )
    chosen: list[Row] = []
    for row in answered_rows:
        if not any(_related(row, chosen_row) for chosen_row in chosen):
            chosen.append(row)
        if len(chosen) == count + 2:
            break
    if len(chosen) < count + 1:
        raise BadInput(
            f"--shots {count}: the split has only {len(chosen)} case(s) of different images with a "
            "known answer. Give fewer."
        )
    return chosen


def with_example_images(
    selection: Selection, rows: Sequence[Row], needed: bool
) -> tuple[tuple[Row, tuple[bytes, ...]], ...]:
    """Return each example with its images, or with none if they are not needed."""
    if not needed or not rows:
        return tuple((row, ()) for row in rows)
    case_ids = {row["case_id"] for row in rows}
    images = {
        (case.case_id, image_id): data
        for case in selection.repository.cases(selection.split, case_ids)
        for image_id, data in case.images.items()
    }
    return tuple((row, tuple(images[row["case_id"], name] for name in row_image_ids(row))) for row in rows)


# --- other images than a question's own ---


# A small cache suffices, as questions about one image are adjacent.
@lru_cache(maxsize=8)
def blank_image(image: bytes) -> bytes:
    """Return a PNG of the same size filled with the image's mean grey level.

    Bytes that cannot be decoded are returned unchanged, so that they fail as in any other run.
    """
    from PIL import Image

    try:
        grey = np.asarray(make_picture(image).pixels.convert("L"))
    except ImageError:
        return image
    return encode_png(Image.new("RGB", grey.shape[::-1], (round(float(grey.mean())),) * 3))


IMAGE_KIND_COLUMNS = ("image_type", "modality")
"""Columns that name the kind of image of a case; the first one that a benchmark has is used."""


@dataclass(frozen=True)
class Partners:
    """The partner of each case of a split: the case whose images it shows.

    Attributes:
        partner_by_case: Case -> its partner.
        images: Case -> its image ids, in the order of its questions.
    """

    partner_by_case: Mapping[str, str]
    images: Mapping[str, tuple[str, ...]]

    def partner_image(self, case: str, image: str) -> str:
        """Return the partner's image that replaces `image`.

        If the partner has fewer images, they are repeated.
        """
        partner_images = self.images[self.partner_by_case[case]]
        return partner_images[self.images[case].index(image) % len(partner_images)]

    def check(self, cases: Sequence[str]) -> None:
        """Raise BadInput if one of these cases has no partner."""
        without_partner = [case for case in dict.fromkeys(cases) if case not in self.partner_by_case]
        if without_partner:
            raise BadInput(
                f"--image swapped: {len(without_partner)} case(s) ({without_partner[0]} ...) have "
                "no other case with another answer, image and patient to take "
                "an image from. Leave this run out, or give a larger dataset."
            )


def assign_partners(questions: pd.DataFrame) -> Partners:
    """Assign to every case of a split a partner with a different key, whose images it shows.

    A case and its partner share no image or patient, and are of the same kind
    (`IMAGE_KIND_COLUMNS`) if the benchmark labels kinds. Partners depend only on the split, so they
    are the same for every model, run and selection.

    The cases of a kind form a ring in which those with the same key are adjacent, otherwise in an
    order drawn from their ids. If the most frequent key has m cases, the partner is the case m
    places ahead, so that the images of every case are used once. If m is more than half of the
    cases, the images of cases with other keys are used several times. If all cases of a kind have
    the same key, their partners are of another kind.

    The key of a case is the texts of the correct options in the order of its questions; for a
    yes/no question it includes the question. A hidden key differs from every other.

    Args:
        questions: all questions of the split (config `questions`).

    Returns:
        The partners; a case without any possible partner is left out.
    """
    facts = _facts(questions)
    partner_by_case: dict[str, str | None] = {}
    for kind in dict.fromkeys(fact.kind for fact in facts.values()):
        partner_by_case |= _in_ring([case for case, fact in facts.items() if fact.kind == kind], facts)
    # Cases without a partner of their own kind get one of any kind.
    if None in partner_by_case.values():
        any_kind = _in_ring(list(facts), facts)
        partner_by_case = {case: partner or any_kind[case] for case, partner in partner_by_case.items()}
    assigned = {case: partner for case, partner in partner_by_case.items() if partner is not None}
    return Partners(assigned, {case: fact.images for case, fact in facts.items()})


@dataclass(frozen=True)
class _Fact:
    kind: str
    key: str
    shared: frozenset[str]
    """Image ids and patients of the case, which its partner must not have."""
    images: tuple[str, ...]


def _facts(questions: pd.DataFrame) -> dict[str, _Fact]:
    """Return the kind, key, images and patients of each case."""
    label = next((name for name in IMAGE_KIND_COLUMNS if name in questions.columns), None)
    rows: dict[str, list[Row]] = {}
    for row in _records(questions):
        rows.setdefault(row["case_id"], []).append(row)
    facts: dict[str, _Fact] = {}
    for case, case_rows in rows.items():
        key = [
            f"{row['question'] if row['question_type'] == 'yes_no' else ''}\0{row['options'][position]}".casefold()
            for row in case_rows
            for position in row["answer"]
        ]
        images = tuple(dict.fromkeys(name for row in case_rows for name in row_image_ids(row)))
        patients = [f"patient\0{row['group']}" for row in case_rows if isinstance(row.get("group"), str)]
        kind = str(case_rows[0][label]) if label else ""
        facts[case] = _Fact(kind, "\n".join(key) or f"hidden\0{case}", frozenset([*images, *patients]), images)
    return facts


def _in_ring(cases: Sequence[str], facts: Mapping[str, _Fact]) -> dict[str, str | None]:
    """Return the partner of each case, None if there is none.

    The cases are sorted by key and form a ring. The search for a partner starts as many places
    ahead as the most frequent key has cases, and takes the first case that has another key and
    shares no image or patient.
    """
    # Hashing the ids gives an arbitrary order that is the same on every machine.
    order = sorted(cases, key=lambda case: (_digest(facts[case].key), _digest(case)))
    cases_per_key = Counter(facts[case].key for case in order)
    max_cases_per_key = max(cases_per_key.values(), default=0)
    key_end = {facts[case].key: position for position, case in enumerate(order, 1)}
    partner_by_case: dict[str, str | None] = {}
    for position, case in enumerate(order):
        fact = facts[case]
        candidates = len(order) - cases_per_key[fact.key]
        offset = position + max_cases_per_key - key_end[fact.key]
        # Walk around the ring, skipping all cases with the same key.
        ring = (order[(key_end[fact.key] + (offset + step) % candidates) % len(order)] for step in range(candidates))
        partner_by_case[case] = next(
            (candidate for candidate in ring if facts[candidate].shared.isdisjoint(fact.shared)), None
        )
    return partner_by_case


def _digest(text: str) -> bytes:
    return hashlib.sha256(f"swapped\0{text}".encode()).digest()


# --- requests with the images of their cases ---


def make_requests(
    selection: Selection,
    maker: RequestMaker,
    instances: Sequence[Instance],
    with_images: bool,
    at_once: int = MAX_REQUESTS_PER_BATCH,
    partners: Partners | None = None,
) -> Iterator[list[Request]]:
    """Yield the requests of these instances in batches, in the order in which cases are stored.

    Args:
        selection: the questions.
        maker: builds single requests.
        instances: (row, sample) pairs.
        with_images: False if the model or the run takes no images.
        at_once: maximum batch size, which limits the memory for images.
        partners: the case whose images each case shows instead of its own; None for its own.
    """
    records = _records(selection.questions)
    batch: list[Request] = []
    for (row, sample), images in _with_images(selection, records, instances, with_images, partners):
        case, image_names = records[row]["case_id"], row_image_ids(records[row])
        partner_image_ids = (
            tuple(partners.partner_image(case, name) for name in image_names) if partners and images else ()
        )
        image_bytes = [images[name] for name in partner_image_ids or image_names] if images else []
        if maker.request.image == "blank":
            image_bytes = list(map(blank_image, image_bytes))
        batch.append(maker.make(records[row], sample, image_bytes, partner_image_ids))
        if len(batch) >= at_once:
            yield batch
            batch = []
    if batch:
        yield batch


def _records(questions: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in questions.to_dict("records")]


def _with_images(
    selection: Selection,
    records: list[Row],
    instances: Sequence[Instance],
    with_images: bool,
    partners: Partners | None,
) -> Iterator[tuple[Instance, Mapping[str, bytes]]]:
    """Yield each instance with the images of its case or of the case's partner.

    Only one case is in memory at a time.
    """
    if not with_images:
        yield from ((instance, {}) for instance in instances)
        return
    # Cases are read in the order in which they are stored, each once.
    waiting: dict[str, list[Instance]] = {}
    for row, sample in instances:
        case_id = records[row]["case_id"]
        waiting.setdefault(partners.partner_by_case[case_id] if partners else case_id, []).append((row, sample))
    for case in selection.repository.cases(selection.split, set(waiting)):
        for instance in waiting.pop(case.case_id, []):
            yield instance, case.images
    if waiting:
        raise BadInput(
            f"{selection.repository.data}: config `cases` lacks {len(waiting)} case(s) that have "
            "questions "
            f"({', '.join(list(waiting)[:3])}). Build the dataset again."
        )
