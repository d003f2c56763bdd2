"""Ask a person instead of a model (`--model human:NAME`).

A page in the browser shows one question after the other. The person sees what a model gets
(question, options and images), but no prompt template. A choice can be changed until the button
"next" is pressed. Then it is in the journal: it can no longer be changed, and the question is not
shown again. The answer key is removed before a question is used in any way.

See also: the page (`dataset_builders/browser_page/`), how many questions a study needs
(`docs/reader_study.md`).
"""

import hashlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError
from dataset_builders.schema import LETTERS
from eval_harness.models.interface import PromptlessBackend
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

if TYPE_CHECKING:
    from fastapi import FastAPI

PAGE_PORT = 7864
"""Port of the page, unless it is taken."""
CANNOT_TELL = "cannot tell"
ANSWER = "answer"
"""Name of the only field on the page."""


@dataclass
class ShownQuestion:
    """A question on the page.

    Attributes:
        number: Position in the reader's order, from 1.
        request: The question, without its key.
        pictures: (media type, content) of each image.
        since: When the page first showed it (`time.monotonic`).
        answer: None until the button "next" is pressed.
    """

    number: int
    request: Request
    pictures: Sequence[tuple[str, bytes]]
    since: float | None = None
    answer: Response | None = None


class HumanReader(PromptlessBackend):
    """A person who answers on a page, one question after the other."""

    needs_images = True

    def __init__(self, name: str) -> None:
        """Set up a reader with this name. Raises BadInput if the name is empty."""
        if not name.strip():
            raise BadInput("--model human: the reader's name is missing. Give a pseudonym, e.g. human:R1.")
        self.model = Model(name=name.strip(), kind="human")
        self.deviations: list[str] = []
        self._places: dict[str, int] = {}
        self._shown: ShownQuestion | None = None
        self._is_over = False
        # Guards `_shown` and `_is_over`: the run's thread and the page's threads wait for each
        # other.
        self._changed = threading.Condition()

    def order(self, questions: pd.DataFrame) -> list[int]:
        """Return the rows in the order in which this reader is asked (`shuffle_apart`)."""
        ids = questions["question_id"].tolist()
        rows = shuffle_apart(self.model.name, ids, questions["case_id"].tolist())
        self._places = {ids[row]: place for place, row in enumerate(rows, 1)}
        return rows

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Serve the page and yield each answer.

        The page confirms an answer only when the run requests the next one: by then the run has
        written the answer.
        """
        from dataset_builders.browser_page.page import encode_for_browser, serve_meanwhile

        self._is_over = False
        with serve_meanwhile(self._page(), PAGE_PORT) as address:
            line = f"{self.model.name} answers on {address} (stop with Ctrl-C; the same command resumes)"
            print(line, file=sys.stderr, flush=True)
            try:
                for request in requests:
                    try:
                        pictures = [encode_for_browser(image) for image in request.images]
                    except ImageError as error:
                        yield Response(request.question_id, request.sample, "", "failed", error=str(error))
                        continue
                    number = self._places[request.question_id]
                    yield self._ask(ShownQuestion(number, replace(request, answer=()), pictures))
                    with self._changed:
                        self._shown = None
                        self._changed.notify_all()
            finally:
                with self._changed:
                    self._is_over = True
                    self._changed.notify_all()

    def _ask(self, current: ShownQuestion) -> Response:
        """Show a question and wait for its answer."""
        with self._changed:
            self._shown = current
            self._changed.notify_all()
            self._changed.wait_for(lambda: current.answer is not None)
        assert current.answer is not None
        return current.answer

    def _page(self) -> "FastAPI":
        """Build the page. The page calls the functions defined here one at a time."""
        from dataset_builders.browser_page.page import Field, ItemView, ReviewTask, build_page

        def items(_: str) -> list[str]:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._shown is not None)
            return [str(number) for number in range(1, len(self._places) + 1)]

        def question(item: str) -> ShownQuestion:
            current = self._shown
            if current is None or item != str(current.number) or current.answer is not None:
                raise BadInput("this question has been answered already. Load the page again.")
            return current

        def show(_: str, item: str) -> ItemView:
            current = question(item)
            current.since = current.since or time.monotonic()
            choices = answer_choices(current.request)
            kind: Literal["choice", "checks"] = "checks" if current.request.question_type == "multiple" else "choice"
            field = Field(ANSWER, "Your answer", kind, list(choices.values()), list(choices), commit="next")
            return ItemView(current.request.question, {}, pictures=[""] * len(current.pictures), fields=[field])

        def save(_: str, item: str, field: str, choice: Any, seen: Any) -> str:
            current = question(item)
            text = answer_text(current.request, choice)
            seconds = round(time.monotonic() - (current.since or time.monotonic()), 1)
            with self._changed:
                current.answer = Response(current.request.question_id, current.request.sample, text, seconds=seconds)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_over or self._shown is not current)
                if self._shown is current:
                    raise BadInput("the run was stopped. Start it again; it will repeat this question.")
            return f"saved {item}"

        return build_page(
            ReviewTask(
                title="Reader study",
                fields=[Field(ANSWER, "", "choice", commit="next")],
                items=items,
                show=show,
                save=save,
                is_done=lambda _, item: self._shown is None or int(item) < self._shown.number,
                picture=lambda item, at: question(item).pictures[at],
                finished="All questions are answered. You can close this page.",
                in_order=True,
            ),
            lambda cookies: self.model.name,
        )


def answer_choices(request: Request) -> dict[str, tuple[str, str]]:
    """Return the choices: key on the keyboard -> (value, text of the button).

    The value is an answer as a baseline writes it: the option of a yes/no question, or else its
    letter.
    """
    if request.question_type == "yes_no":
        choices = {option.strip()[:1].lower(): (option, option) for option in request.options}
    else:
        choices = {
            letter.lower(): (letter, f"{letter}. {option}")
            for letter, option in zip(LETTERS, request.options, strict=False)
        }
    return choices | {"0": (CANNOT_TELL, CANNOT_TELL)}


def answer_text(request: Request, choice: Any) -> str:
    """Return the text of an answer.

    Args:
        request: The question.
        choice: A value of `answer_choices`, or a list of them.

    Raises:
        BadInput: If nothing is chosen, the choice is invalid, or "cannot tell" is chosen together
            with an option.
    """
    values = [value for value, _ in answer_choices(request).values()]
    chosen = choice if isinstance(choice, list) else [choice]
    picks = [value for value in values if value in chosen]
    if not picks or len(picks) != len(chosen) or (len(picks) > 1 and request.question_type != "multiple"):
        raise BadInput(f"choose an answer first, or {CANNOT_TELL!r}.")
    if CANNOT_TELL in picks and len(picks) > 1:
        raise BadInput(f"choose either options or {CANNOT_TELL!r}.")
    return "I cannot tell." if CANNOT_TELL in picks else ",".join(picks)


def shuffle_apart(seed: str, ids: Sequence[str], cases: Sequence[str]) -> list[int]:
    """Shuffle questions so that questions of the same case are far apart.

    Two questions of a case never follow each other, unless it has more than half of all questions.
    In a set of pairs, the first half of the order contains one question of each pair.

    Args:
        seed: What the order depends on, besides the ids.
        ids: The questions.
        cases: The case of each question.

    Returns:
        The positions of the questions in their new order.
    """
    digests = [hashlib.sha256(f"{seed}\0{question_id}".encode()).digest() for question_id in ids]
    rows_of_case: dict[str, list[int]] = {}
    for row in sorted(range(len(ids)), key=digests.__getitem__):
        rows_of_case.setdefault(cases[row], []).append(row)
    # Of a case with m questions, the k-th is placed at random in the k-th of m equal parts.
    places = {
        row: (number + int.from_bytes(digests[row][:6]) / 2**48) / len(rows)
        for rows in rows_of_case.values()
        for number, row in enumerate(rows)
    }
    waiting, order = sorted(places, key=places.__getitem__), list[int]()
    while waiting:
        fits = (at for at, row in enumerate(waiting) if not order or cases[row] != cases[order[-1]])
        at = next(fits, None)
        if at is None:  # only one case is left: insert its questions between earlier ones
            row = waiting.pop()
            gaps = (
                gap
                for gap in range(len(order), -1, -1)
                if cases[row] not in map(cases.__getitem__, order[max(gap - 1, 0) : gap + 1])
            )
            order.insert(next(gaps, len(order)), row)
        else:
            order.append(waiting.pop(at))
    return order
