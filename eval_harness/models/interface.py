"""What travels between the runner and a back end: a Request goes in, a Response comes out.

A back end is any object with the attributes and the method of `Backend`; a plug-in needs no base class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eval_harness.results import Model


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt with its image. `answer` is the key, for the oracle baseline only; a real model must not look at it."""

    question_id: str
    sample: int
    prompt: str
    image: bytes | None
    options: tuple[str, ...]
    question_type: str
    answer: tuple[int, ...] = ()
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """What came back. `status`: `answered` (a text came, not yet read), `refused` (a filter held it back), `failed` (nothing came).

    `error` says why a `failed` one failed; it is kept apart from `text`, so that an error can never be read as an answer.
    """

    question_id: str
    sample: int
    text: str
    status: str = "answered"
    seconds: float | None = None
    scores: tuple[float, ...] | None = None
    error: str | None = None


class Backend(Protocol):
    """A model that answers requests.

    `model`: what the result file says of it. `needs_images`: whether requests must carry their image. `one_token`: whether it can be
    held to `max_tokens=1` (HALT-MedVQA asks for that). `deviations`: what it could not do as the protocol says, in words.
    """

    model: Model
    needs_images: bool
    one_token: bool
    deviations: list[str]

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield one Response per Request, as they finish, in any order."""
        ...

    def describe(self) -> dict[str, Any]:
        """Library versions, device, dtype and the like, for the result's `environment`."""
        ...


@dataclass(slots=True)
class Settings:
    """What the command line says about how a model is run."""

    batch_size: int | None = None
    """None: found automatically."""
    base_url: str | None = None
    display_name: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
