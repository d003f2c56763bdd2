"""Make requests of questions: prompt, system message, worked examples, option order, candidates to score.

Also the way back: what a choice among re-ordered options means.
See also: which questions (`records/selection.py`), sending them (`ask.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS, row_image_ids
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.prompt import Prompt
from eval_harness.prompts import get_prompt
from eval_harness.records.conversation import Form, get_form
from eval_harness.records.permutations import rotate_options, rotation
from eval_harness.records.request import Request, Scoring, Shot
from eval_harness.records.run import RunRequest
from eval_harness.records.selection import Selection
from eval_harness.runs.images import Partners, blank_image

Row = dict[str, Any]
Instance = tuple[int, int]
"""One question put once: (row of the question, sample number)."""

_SCORING: dict[str, Scoring] = {"gd": "next_token", "ps": "sequence", "ps_official": "sequence_official"}

MAX_REQUESTS_PER_BATCH = 256
"""How many requests (with their images) are handed to a back end together; bounds the memory the images take."""


@dataclass(frozen=True)
class RequestMaker:
    """Makes the requests of a run, in the conversation form that the run's request names."""

    request: RunRequest
    family: str
    shots: tuple[tuple[Row, tuple[bytes, ...]], ...] = ()

    def make(self, row: Row, sample: int, images: Sequence[bytes], shown_ids: tuple[str, ...] = ()) -> Request:
        """The request of one question and sample; `images` are those it shows, none where they are withheld; `shown_ids` are theirs where
        they are another case's."""
        method, generation = self.request.method, self.request.generation
        kind = row["question_type"]
        prompt = get_prompt(self.family, self.request.prompt, kind, method)
        turned = rotation(sample, len(row["options"])) if self.request.permute else 0
        options = rotate_options(row["options"], turned)
        count = len(options)
        examples = [pair for pair in self.shots if not _related(pair[0], row)][: self.request.shots]
        return Request(
            question_id=row["question_id"],
            sample=sample,
            prompt=prompt.render(row["question"], options),
            image=images[0] if images else None,
            more_images=tuple(images[1:]),
            options=tuple(options),
            question_type=kind,
            answer=tuple((int(position) - turned) % count for position in row["answer"]),
            max_tokens=1 if method == "gd" else generation["max_tokens"],
            temperature=generation["temperature"],
            seed=generation["seed"],
            system=self.system(prompt, bool(examples)),
            image_first=self.form.image_first,
            shots=tuple(self._shot(example, pictures) for example, pictures in examples),
            candidates=_candidates(method, options, prompt.shows_options),
            scoring=_SCORING.get(method, "next_token"),
            shown=shown_ids,
        )

    @property
    def form(self) -> Form:
        """The form of the run; the default one for what is sent no conversation."""
        return get_form(self.request.generation.get("form"))

    def system(self, prompt: Prompt, with_examples: bool) -> str | None:
        """The system message: the user's own, else the authors' where the form has it; what introduces the examples is sent either way."""
        intro = prompt.intro if with_examples else None
        own: str | None = self.request.generation.get("system")
        if own is None:
            return intro or (eval_spec(self.family).system if self.form.system else None)
        return "\n\n".join(text for text in (own, intro) if text) or None

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
    """The texts to score: letters (`gd`, options shown), first words of the options (`gd`, not shown), options (`ps`)."""
    if method == "gd":
        return tuple(LETTERS[: len(options)]) if shows_options else tuple(_capital(option) for option in options)
    return tuple(option.strip() for option in options) if method in _SCORING else ()


def _capital(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:]


def _related(example: Row, row: Row) -> bool:
    return example["case_id"] == row["case_id"] or not set(row_image_ids(example)).isdisjoint(row_image_ids(row))


def example_rows(selection: Selection, count: int) -> list[Row]:
    """The questions worked examples are taken from: the same few for the whole run, in an order drawn by their ids, each of another
    case and another image, with some to spare for the questions that they are too close to. Questions that are asked come first, the
    rest of the split where a `--limit` or `--branch` leaves too few of them.

    Raises BadInput if the split has too few cases with a known answer.
    """
    ids = set(selection.questions["question_id"])
    known = [row for row in _records(selection.repository.questions(selection.split)) if len(row["answer"])]
    known.sort(
        key=lambda row: (row["question_id"] not in ids, hashlib.sha256(f"shot\0{row['question_id']}".encode()).digest())
    )
    chosen: list[Row] = []
    for row in known:
        if not any(_related(row, other) for other in chosen):
            chosen.append(row)
        if len(chosen) == count + 2:
            break
    if len(chosen) < count + 1:
        raise BadInput(
            f"--shots {count}: the split has only {len(chosen)} case(s) of different images with a known answer. Give fewer."
        )
    return chosen


def with_example_images(
    selection: Selection, rows: Sequence[Row], needed: bool
) -> tuple[tuple[Row, tuple[bytes, ...]], ...]:
    """Each example with its images; none where the model takes none."""
    if not needed or not rows:
        return tuple((row, ()) for row in rows)
    wanted = {row["case_id"] for row in rows}
    images = {
        (case.case_id, image_id): data
        for case in selection.repository.cases(selection.split, wanted)
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
    """The requests of these instances, in the order the cases are stored, in lists that bound the memory their images take.

    `partners`: whose images each case shows instead of its own."""
    records = _records(selection.questions)
    batch: list[Request] = []
    for (row, sample), images in _with_images(selection, records, instances, with_images, partners):
        case, names = records[row]["case_id"], row_image_ids(records[row])
        other = tuple(partners.shown(case, name) for name in names) if partners and images else ()
        shown = [images[name] for name in other or names] if images else []
        if maker.request.image == "blank":
            shown = list(map(blank_image, shown))
        batch.append(maker.make(records[row], sample, shown, other))
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
    """Each instance with the images of its case, or of its case's partner; one case is held at a time."""
    if not with_images:
        yield from ((instance, {}) for instance in instances)
        return
    waiting: dict[str, list[Instance]] = {}
    for row, sample in instances:
        case_id = records[row]["case_id"]
        waiting.setdefault(partners.of[case_id] if partners else case_id, []).append((row, sample))
    for case in selection.repository.cases(selection.split, set(waiting)):
        for instance in waiting.pop(case.case_id, []):
            yield instance, case.images
    if waiting:
        raise BadInput(
            f"{selection.repository.data}: config `cases` lacks {len(waiting)} case(s) that have questions "
            f"({', '.join(list(waiting)[:3])}). Build the dataset again."
        )
