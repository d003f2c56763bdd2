"""Build requests from questions: prompt, system message, examples, option order, candidates.

See also: selecting the questions (`records/selection.py`), sending the requests (`ask.py`), mapping
a choice among rotated options back (`records/request.py`).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS, row_image_ids
from eval_harness.benchmarks import eval_spec, get_prompt
from eval_harness.benchmarks.prompt import Prompt
from eval_harness.records.conversation import Form, get_form
from eval_harness.records.request import Request, Scoring, Shot, rotate_options, rotation
from eval_harness.records.run import RunRequest
from eval_harness.records.selection import Selection
from eval_harness.runs.images import Partners, blank_image

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
