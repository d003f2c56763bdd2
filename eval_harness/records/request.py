"""Requests to a model and its responses.

Also: the forms of a conversation (the order of image and text, and whether the authors' system
message is sent), which are the same for every back end unless `--form` names another; the names of
finish reasons, from servers or recorded answers, as OpenAI's API has them; and the options of a
`--permute` run, rotated by sample.

See also: the wording of prompts (`benchmarks/`), a model's chat template
(`models/local/model_inputs.py`).
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dataset_builders.errors import BadInput
from eval_harness.records.result import DELIVERIES

Scoring = Literal["next_token", "sequence", "sequence_official"]
"""How candidates are scored. `next_token`: log-probability of the next token (`gd`). `sequence`:
mean log-probability of the candidate's tokens (`ps`). `sequence_official`: that mean as
MediConfusion's authors compute it (`ps_official`, see `answer_tokens.py`).
"""


@dataclass(frozen=True, slots=True)
class Shot:
    """A worked example before the question: its prompt, answer and images."""

    prompt: str
    answer: str
    image: bytes | None
    more_images: tuple[bytes, ...] = ()

    @property
    def images(self) -> tuple[bytes, ...]:
        """See `Request.images`."""
        return () if self.image is None else (self.image, *self.more_images)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt with its images.

    `more_images` are the images after the first, sent only to a back end with `several_images`.
    `answer` is the key, present for the oracle baseline alone; a real model must not read it.
    `candidates` are the texts to score, one per option (methods `gd` and `ps`; otherwise empty).
    """

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
    system: str | None = None
    image_first: bool = True
    """True if the image precedes the text of its turn (`Form`)."""
    shots: tuple[Shot, ...] = ()
    candidates: tuple[str, ...] = ()
    scoring: Scoring = "next_token"
    more_images: tuple[bytes, ...] = ()
    shown: tuple[str, ...] = ()
    """Ids of the images, if they belong to another case than the question (`--image swapped`)."""
    question: str = ""
    """Text of the question, without the prompt template."""

    @property
    def images(self) -> tuple[bytes, ...]:
        """The question's images, in order; empty if they are withheld."""
        return () if self.image is None else (self.image, *self.more_images)

    @property
    def all_images(self) -> tuple[bytes, ...]:
        """The images of the worked examples, then those of the question."""
        return (*(image for shot in self.shots for image in shot.images), *self.images)


@dataclass(frozen=True, slots=True)
class Response:
    """The reply to a request.

    Attributes:
        status: `answered` (text received, not yet read), `refused` (blocked by a filter), `failed`
            (nothing received), `missing` (absent from a file of recorded answers).
        error: why the status is not `answered`; separate from `text`, so that an error is never
            read as an answer.
        scores: one log-likelihood per option; None if options were not scored.
        usage: input and output tokens, if counted.
        shown: ids of another case's images that were shown (`Request.shown`); set by the run.
        reasoning: the model's reasoning, separate from `text` and never read for a choice.
        finish_reason: as in OpenAI's API (`stop`, `length`, `content_filter`); None if unknown.
    """

    question_id: str
    sample: int
    text: str
    status: str = "answered"
    seconds: float | None = None
    scores: tuple[float, ...] | None = None
    error: str | None = None
    usage: tuple[int, int] | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    shown: tuple[str, ...] = ()
    from_cache: bool = False
    """True if reused from an earlier run (`ask.ReplyCache`)."""


def normalize_response(response: Response, options: int) -> Response:
    """Convert a back end's response to plain Python types, which can be written to a journal.

    Invalid seconds or token counts become None.

    Args:
        response: may contain numbers of other libraries, such as NumPy's.
        options: number of options of the question.

    Raises:
        ValueError: text, status or scores are invalid, which is a bug in the back end.
    """
    if not isinstance(response.text, str | None):
        raise ValueError(f"text of type {type(response.text).__name__}")
    if response.status not in DELIVERIES:
        raise ValueError(f"status {response.status!r}: must be one of {', '.join(DELIVERIES)}")
    scores = None
    if response.scores is not None:
        try:
            scores = tuple(map(float, response.scores))
        except (TypeError, ValueError, OverflowError):
            raise ValueError("scores that are not numbers") from None
        # Infinite scores are valid: an impossible option has log-likelihood -inf.
        if any(map(math.isnan, scores)):
            raise ValueError("scores that are not numbers")
        if len(scores) != options:
            raise ValueError(f"{len(scores)} scores for {options} options")
    texts = [getattr(response, name) for name in ("error", "reasoning", "finish_reason")]
    error, reasoning, finish_reason = (None if text is None else str(text) for text in texts)
    return replace(
        response,
        question_id=str(response.question_id),
        sample=int(response.sample),
        text=str(response.text or ""),
        scores=scores,
        seconds=_number(response.seconds, 1e9),
        usage=_tokens(response.usage),
        error=error,
        reasoning=reasoning,
        finish_reason=normalize_finish_reason(finish_reason),
    )


def _number(value: Any, upper_bound: float) -> float | None:
    """Return a finite number in [0, upper_bound); None for anything else, including NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < upper_bound else None


def _tokens(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, (tuple, list)) or len(usage) != 2:
        return None
    # Above 2^53, floating-point numbers no longer represent every integer.
    tokens_in, tokens_out = (_number(count, 1 << 53) for count in usage)
    return None if tokens_in is None or tokens_out is None else (int(tokens_in), int(tokens_out))


# --- forms of a conversation ---


@dataclass(frozen=True, slots=True)
class Form:
    """A conversation form.

    `image_first`: the image precedes the text of its turn. `system`: include the system message
    that the benchmark's authors sent to API models (`EvalSpec.system`), if they sent one.
    """

    name: str
    image_first: bool
    system: bool


FORMS = {
    form.name: form
    for form in (
        Form("image-first", image_first=True, system=False),
        Form("text-first", image_first=False, system=False),
        Form("image-first-system", image_first=True, system=True),
        Form("authors", image_first=False, system=True),
    )
}
"""The available forms, by name.

`image-first` is the order in model cards and chat templates. `authors` is how the benchmarks'
authors called API models: text before image (MediConfusion `Models/gpt.py`; ProbMed `gpt4v.py`),
with their system message.
"""

DEFAULT_FORM = "image-first"


def get_form(name: str | None) -> Form:
    """Return the form of this name; None means the default.

    Raises:
        BadInput: an unknown name.
    """
    form = FORMS.get(name or DEFAULT_FORM)
    if form is None:
        raise BadInput(f"--form {name}: unknown. Available: {', '.join(FORMS)}.")
    return form


def form_hash(
    form: Form, systems: Sequence[str | None], with_image: bool, template: str | None, template_kwargs: dict[str, Any]
) -> str:
    """Hash the conversation format, without the prompt's text.

    Runs with equal hashes present the same prompt in the same way.

    Args:
        form: order of the parts.
        systems: system messages, one per question type.
        with_image: True if an image is sent.
        template: the user's chat template, if any.
        template_kwargs: its arguments.

    Returns:
        16 hexadecimal digits.
    """
    parts = ["image", "text"] if form.image_first else ["text", "image"]
    user = {"role": "user", "content": [part for part in parts if with_image or part == "text"]}
    conversations = [[*([{"role": "system", "content": text}] if text else []), user] for text in systems]
    # Roles and parts, not texts: two prompts in the same format have one hash.
    document = {"conversations": conversations, "template": template, "template_kwargs": template_kwargs}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


# --- finish reasons ---

FINISH_REASONS = {
    "length": (
        *("length", "max_tokens", "max_output_tokens", "model_length", "max_length", "token_limit", "incomplete"),
        "model_context_window_exceeded",
    ),
    "stop": ("stop", "end_turn", "stop_sequence", "eos", "eos_token", "end_of_turn", "complete", "completed"),
    "error": ("error",),
}
"""OpenAI's finish reason -> what other APIs call it, compared case-insensitively.

They are Anthropic, Gemini, Mistral, Cohere, TGI, OpenAI's Responses API and inspect-ai.
"""

STATUS_BY_FINISH_REASON = {"content_filter": "refused", "error": "failed"}
"""Finish reason -> status of a response that ended with it."""

_FILTER = re.compile(
    r"content[ "
    r"_-]?(?:filter|policy|management|violation)|moderat|(?<!case_)(?<!in)sensitive|safety(?!_?(?:identifier|setting))"
    r"|responsible[ "
    r"_-]?ai|inspection|guardrail|intervened|prohibited|blocklist|censor|toxic|recitation|refusal|flagged"
    r"|^(?:blocked|block_?reason|filtered|hap|spii|invalid_prompt|1301)$",
    re.IGNORECASE,
)
"""Error codes, error types and finish reasons that content filters give.

`invalid_prompt` is OpenAI's code for a flagged prompt, 1301 is Zhipu's.
"""


def is_filter(name: Any) -> bool:
    """Whether a code, type or finish reason is that of a content filter."""
    return isinstance(name, str) and _FILTER.search(name) is not None


def normalize_finish_reason(reason: Any) -> str | None:
    """Return OpenAI's name for a finish reason.

    A reason unknown to OpenAI is returned unchanged; anything but a non-empty string gives None.

    >>> normalize_finish_reason("FinishReason.MAX_TOKENS"), normalize_finish_reason("refusal")
    ('length', 'content_filter')
    >>> normalize_finish_reason("tool_use"), normalize_finish_reason(2)
    ('tool_use', None)
    """
    if not isinstance(reason, str) or not reason.strip():
        return None
    # Gemini's library puts the name of the enumeration before the reason.
    word = reason.rpartition(".")[2].strip().casefold()
    openai_reason = next((name for name, words in FINISH_REASONS.items() if word in words), None)
    return openai_reason or ("content_filter" if is_filter(word) else reason)


# --- the options of a `--permute` run ---


def rotation(sample: int, options: int) -> int:
    """Return how far the options of a sample are rotated; sample s shows option s first."""
    # With more samples than options the rotations repeat.
    return sample % options


def rotate_options(options: Sequence[str], rotated_by: int) -> list[str]:
    """Rotate the options to the left by `rotated_by` positions."""
    return [*options[rotated_by:], *options[:rotated_by]]


def original_position(position: int, rotated_by: int, options: int) -> int:
    """Return the original position of the option displayed at `position`."""
    return (position + rotated_by) % options
