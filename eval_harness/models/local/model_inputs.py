"""Convert requests to token ids and pixels with a processor of transformers, and decode outputs.

Prompts are rendered by the processor's chat template, or as plain text if it has none: either as
full prompts, or as image prefixes with the questions that share them. New tokens are decoded into
reasoning and answer. See also: the wording of prompts (`benchmarks/`), running the network
(`network.py`).
"""

import copy
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dataset_builders.errors import BadInput, describe_error
from dataset_builders.images.picture import DECODER_THREADS, make_picture
from eval_harness.models.answer_tokens import (
    OutputReader,
    candidate_first_tokens,
    continuation_ids,
    opens_reasoning,
    reasoning_delimiter_ids,
    thinking_variables,
)
from eval_harness.models.interface import Settings, short_digest
from eval_harness.records.request import Request

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Message = dict[str, Any]

PLAIN_BY_DEFAULT = ("blip-2", "instructblip", "paligemma", "git", "kosmos-2", "fuyu")
"""Model types without a chat template that are made for plain text.

The benchmarks' prompts for such models, such as MediConfusion's `mc-blip2`, contain the words that
they expect.
"""

PLAIN_TEMPLATE = (
    "{% for message in messages %}{% for part in message.content if part.type == 'image' %}{{ marker }}{% endfor %}"
    "{{ ' ' if message.role == 'assistant' }}{% for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    "{{ {'system': ' ', 'user': '', 'assistant': end_of_shot}[message.role] }}{% endfor %}"
)
"""Template for plain text: image markers, then the unchanged prompt.

With worked examples this is the form of Med-Flamingo,
`<image>prompt answer<|endofchunk|>...<image>prompt` (MediConfusion, appendix B.1).
"""

FLATTEN_TURNS = (
    "{%- set flat = namespace(messages=[]) -%}{%- for message in messages -%}{%- set turn = namespace(text='') -%}"
    "{%- for part in message.content -%}{%- set turn.text = turn.text ~ (part.text if part.type == 'text' else 'IMAGE') -%}{%- endfor -%}"
    "{%- set flat.messages = flat.messages + [{'role': message.role, 'content': turn.text}] -%}{%- endfor -%}"
    "{%- set messages = flat.messages -%}"
)
"""Prefix for templates that expect a turn to be one text.

Joins the parts of each turn, with a marker for each image.
"""

TOKEN_TYPE_INPUTS = ("token_type_ids", "mm_token_type_ids")
"""Tensors parallel to `input_ids` that mark image tokens; cut at the same place as the prompt."""

SHARABLE_INPUTS = {
    "input_ids",
    "attention_mask",
    "pixel_values",
    "image_sizes",
    "image_grid_thw",
    "pixel_attention_mask",
    "batch_num_images",
    *TOKEN_TYPE_INPUTS,
}
"""Processor outputs that allow sharing an image prefix.

A model with any other input (cross-attention masks, positions) may treat tokens after a prefix
differently, so its prompts are not split.
"""


@dataclass(slots=True)
class PreparedBatch:
    """A batch ready for the network.

    Full prompts: one row per request. Shared prefixes: one row per image, and `continuations`.
    """

    requests: list[Request]
    inputs: dict[str, Any]
    """The processor's tensors, padded on the left."""
    continuations: list[tuple[int, list[int]]] = field(default_factory=list)
    """For each request the row that it continues, and its own token ids (at least one).

    Empty for full prompts.
    """

    @property
    def width(self) -> int:
        """Number of positions of the padded prompts."""
        return int(self.inputs["input_ids"].shape[1]) + max((len(ids) for _, ids in self.continuations), default=0)

    def lengths(self) -> list[int]:
        """Return the number of tokens of each prompt.

        Image tokens count if the processor expands them.
        """
        mask = self.inputs["attention_mask"].sum(-1).tolist()
        continuations = self.continuations or [(row, []) for row in range(len(mask))]
        return [int(mask[row]) + len(ids) for row, ids in continuations]


class PromptProcessor:
    """Turns the requests for one model into batches, and reads its outputs (`reader`).

    Prepare batches in one thread at a time; images are decoded in several threads of its own.

    Attributes:
        plain: Whether prompts are sent as plain text because there is no chat template.
        opened: Whether the rendered prompt opens the model's reasoning.
        budget: (maximum reasoning tokens, start token id, end token id); None without a budget.
        template_hash: Hash of the chat template.
    """

    def __init__(self, model_id: str, processor: Any, settings: Settings) -> None:
        """Set the chat template and its variables.

        Args:
            model_id: Id or folder of the model, for messages.
            processor: Processor of transformers; its `chat_template` is set.
            settings: Template, template variables and reasoning options.

        Raises:
            BadInput: If the template does not support the settings.
        """
        self.model_id, self.processor = model_id, processor
        processor.chat_template = settings.chat_template or find_chat_template(processor)
        self.plain = not processor.chat_template
        self.template_variables: dict[str, Any] = dict(settings.chat_template_kwargs)
        self.image_side = settings.max_image_side
        self._decoders = ThreadPoolExecutor(DECODER_THREADS, thread_name_prefix="decode")
        self._control_tokens = _control_token_pattern(processor)
        self._processor_options: dict[str, Any] = {"padding": True}
        if self.plain:
            chunk = "<|endofchunk|>"
            end = chunk if chunk in processor.tokenizer.get_vocab() else "\n"
            self.template_variables |= {
                "chat_template": PLAIN_TEMPLATE,
                "marker": self._image_marker(),
                "end_of_shot": end,
            }
        template = "plain text" if self.plain else str(processor.chat_template)
        self.template_hash = short_digest(template.encode())
        self.budget: tuple[int, int, int] | None = None
        prompt_end = self._switch_thinking(settings, template)
        self.opened = opens_reasoning(prompt_end)
        self._space = "" if prompt_end[-1:].isspace() else " "
        self._tokenizer = copy.deepcopy(processor.tokenizer)  # the original is in use in the preparing thread
        self.reader = OutputReader(self._tokenizer, self.opened)

    def _switch_thinking(self, settings: Settings, template: str) -> str:
        """Set the template variables for `--thinking`.

        Returns the text that the template then writes after a question. Raises BadInput if the
        template does not support `--thinking` or cannot be rendered.
        """
        try:
            self.template_variables |= thinking_variables(
                self._rendered_end, self.template_variables, settings.thinking
            )
            prompt_end = self._rendered_end(self.template_variables)
        except BadInput:
            raise
        except Exception as error:  # a template is code and may raise anything
            raise BadInput(
                f"--model {self.model_id}: its chat template cannot be used ({describe_error(error)}). Give other --chat-template-kwargs, "
                "or another template with --chat-template FILE."
            ) from None
        if isinstance(settings.thinking, int):
            self.budget = (settings.thinking, *reasoning_delimiter_ids(self.processor.tokenizer, template))
        return prompt_end

    def candidate_first_tokens(self, request: Request) -> list[list[int]]:
        """Return the tokens that can begin each candidate (`answer_tokens.py`)."""
        return candidate_first_tokens(request, self._tokenize, self.model_id)

    def continuation_ids(self, text: str) -> list[int]:
        """Return an answer's token ids as the model would write it (`answer_tokens.py`)."""
        return continuation_ids(text, self._tokenize, self._space)

    def _tokenize(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def full_prompts(self, requests: Sequence[Request]) -> PreparedBatch:
        """Prepare every prompt with its own image."""
        return PreparedBatch(list(requests), self._tensors(requests))

    def shared_prefixes(self, requests: Sequence[Request]) -> PreparedBatch | None:
        """Prepare requests grouped by image, so that each image's tokens occur only once.

        Prompts are split between tokens: everything up to the last image token comes from the
        processor, which expands images; the text after it is tokenized alone. For the first request
        of each group, both parts together must equal the processor's own output, token for token.

        Args:
            requests: The requests of a batch.

        Returns:
            The batch, in the order of the requests; None if the prompts cannot be split.
        """
        groups: dict[Any, list[int]] = {}
        for position, request in enumerate(requests):
            groups.setdefault((request.images, request.shots, request.system), []).append(position)
        if self.plain or len(groups) == len(requests) or not requests[0].images:
            return None
        raw_ids = self.raw_ids(requests)
        inputs = self._tensors([requests[members[0]] for members in groups.values()])
        # Which inputs a model takes is known only from the processor's output.
        if not set(inputs) <= SHARABLE_INPUTS:
            return None

        continuations: list[tuple[int, list[int]]] = [(0, [])] * len(requests)
        prefixes: list[list[int]] = []
        token_types: dict[str, list[list[int]]] = {name: [] for name in TOKEN_TYPE_INPUTS if name in inputs}
        for row, members in enumerate(groups.values()):
            first_ids = inputs["input_ids"][row][inputs["attention_mask"][row].bool()].tolist()
            image_token = getattr(self.processor, "image_token_id", None)
            expansion = _expand_images(first_ids, [raw_ids[member] for member in members], image_token)
            if expansion is None:
                return None
            text_start, prompts = expansion
            # The prefix may include text common to all questions, but each keeps at least a token.
            cut = min(_common_prefix_length(prompts), min(map(len, prompts)) - 1) if len(members) > 1 else text_start
            if cut < text_start:
                return None
            prefixes.append(first_ids[:cut])
            for name, prefix_types in token_types.items():
                types: list[int] = inputs[name][row][inputs["attention_mask"][row].bool()].tolist()
                # The text after the prefix must not be marked as part of an image.
                if any(types[cut:]):
                    return None
                prefix_types.append(types[:cut])
            for member, ids in zip(members, prompts, strict=True):
                continuations[member] = row, ids[cut:]

        pad = self.processor.tokenizer.pad_token_id
        inputs["input_ids"], inputs["attention_mask"] = pad_left(prefixes, pad)
        for name, prefix_types in token_types.items():
            inputs[name] = pad_left(prefix_types, 0)[0]
        return PreparedBatch(list(requests), inputs, continuations)

    def _rendered_end(self, variables: Mapping[str, Any]) -> str:
        """Return what the template writes after a question; "" if there is no chat template."""
        question = "What is shown?"
        if self.plain:
            return ""
        turn = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        text = str(self.processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False, **variables))
        return text.rpartition(question)[2]

    def _tensors(self, requests: Sequence[Request]) -> dict[str, Any]:
        kwargs = dict(self._processor_options)  # a copy, because transformers modifies it
        options = {"return_tensors": "pt", "processor_kwargs": kwargs, "return_dict": True}
        conversations = self._conversations(requests, self._decode_images(requests))
        return dict(self.processor.apply_chat_template(conversations, **self._template_options, **options))

    def _image_marker(self) -> str:
        """Return the placeholder of an image in a plain prompt.

        "" if the processor inserts its image tokens itself.
        """
        token = getattr(self.processor, "image_token", None)
        marker = getattr(token, "content", token)
        if not marker or getattr(self.processor, "num_query_tokens", None):  # BLIP-2 silently accepts a second marker
            return ""
        from PIL import Image

        for options in (
            {},
            {"multi_page": True},
        ):  # GOT-OCR2 accepts lists of images only with the second
            try:
                self.processor(
                    text=[f"{marker} x"],
                    images=[[Image.new("RGB", (64, 64))]],
                    return_tensors="pt",
                    **options,
                )
            except (TypeError, ValueError):  # Florence-2, Fuyu: two markers for one image
                continue
            self._processor_options |= options
            return str(marker)
        return ""

    def raw_ids(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return token ids in which each image is a single marker, not expanded."""
        options = {"chat_template": self.processor.chat_template, "return_dict": False}
        ids: list[list[int]] = self.processor.tokenizer.apply_chat_template(
            self._conversations(requests, None), **self._template_options, **options
        )
        return ids

    @property
    def _template_options(self) -> dict[str, Any]:
        return {**self.template_variables, "add_generation_prompt": True, "tokenize": True}

    def _conversations(
        self, requests: Sequence[Request], pictures: "Mapping[bytes, PILImage] | None"
    ) -> list[list[Message]]:
        """Build the conversations, with control tokens in their texts broken by a space.

        A question that contains "<image>" or another control token must stay text. (transformers'
        own `sanitize_control_tokens` is not supported by every tokenizer and processor.)
        """

        def as_text(text: str) -> str:
            return self._control_tokens.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

        def image_part(image: bytes) -> dict[str, Any]:
            return {"type": "image"} | ({"image": pictures[image]} if pictures is not None else {})

        return [build_conversation(request, image_part, as_text) for request in requests]

    def _decode_images(self, requests: Sequence[Request]) -> "dict[bytes, PILImage]":
        """Decode each distinct image once, several in parallel."""
        distinct = list(dict.fromkeys(image for request in requests for image in request.all_images))
        sides = [self.image_side] * len(distinct)
        return dict(zip(distinct, self._decoders.map(decode_rgb_image, distinct, sides), strict=True))


def find_chat_template(processor: Any) -> str | None:
    """Find the chat template of a processor, or else of its tokenizer.

    If there are several, the one named `default` is used. A tokenizer's template may expect a turn
    to be one text; it is then wrapped so that it gets each turn as a text with a marker for each
    image.

    Args:
        processor: Processor of transformers.

    Returns:
        The template; None if there is none.
    """
    for owner in (processor, processor.tokenizer):
        template = getattr(owner, "chat_template", None)
        if isinstance(template, dict):
            template = template.get("default") or next(iter(template.values()), None)
        if template and owner is processor:
            return str(template)
    if not template:
        return None
    turn = [{"role": "user", "content": [{"type": "text", "text": "What is shown?"}]}]
    try:
        # A template that expects texts prints the list of parts in Python's notation.
        takes_parts = "'type'" not in processor.tokenizer.apply_chat_template(
            turn, chat_template=template, tokenize=False
        )
    except Exception:  # a template may raise anything
        takes_parts = False
    return template if takes_parts else FLATTEN_TURNS.replace("IMAGE", getattr(processor, "image_token", "")) + template


def output_limit(request: Request, model_limit: int | None, settings: Settings) -> tuple[int, str | None]:
    """Determine the output-token limit of a request.

    A limit from the command line always applies. Otherwise it is the protocol's limit, or the
    model's own if that is lower.

    Args:
        request: The request, with the limit of the protocol or of `--max-tokens`.
        model_limit: Limit in the model's generation config, if any.
        settings: Settings of the run.

    Returns:
        (limit in tokens, deviation from the protocol or None).
    """
    is_user_limit = settings.max_tokens is not None or settings.thinking is not None
    if is_user_limit or not model_limit or model_limit >= request.max_tokens:
        return request.max_tokens, None
    return int(model_limit), (
        f"the model's generation config limits answers to {model_limit} of the {request.max_tokens} output tokens allowed "
        "(--max-tokens lifts that)"
    )


def sampling_seed(request: Request) -> int:
    """Return a seed that depends only on the run's seed, the question and the sample number."""
    text = f"{request.seed}\0{request.question_id}\0{request.sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _control_token_pattern(processor: Any) -> re.Pattern[str]:
    """Match special tokens, and added tokens that the chat template writes (Qwen's `<think>`)."""
    added_tokens = processor.tokenizer.added_tokens_decoder.values()
    template = str(getattr(processor, "chat_template", None) or "")
    tokens = {str(token) for token in added_tokens if token.special or str(token) in template}
    tokens = {token for token in tokens.union(processor.tokenizer.all_special_tokens) if len(token.strip()) > 1}
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _expand_images(
    first_ids: list[int], raw_ids: list[list[int]], image_token: int | None
) -> tuple[int, list[list[int]]] | None:
    """Expand the image markers of prompts that share their images.

    Args:
        first_ids: The processor's output for the first prompt. It ends like `raw_ids[0]`: with the
            text after the last image.
        raw_ids: Token ids of each prompt with one marker per image. Up to the last image, all must
            equal the first one.
        image_token: Id of the image token.

    Returns:
        (position where the text after the last image begins, expanded ids of each prompt); None if
        the conditions do not hold.
    """
    first_raw = raw_ids[0]
    tail = _common_prefix_length([first_ids[::-1], first_raw[::-1]])
    while tail and first_raw[len(first_raw) - tail] == image_token:
        tail -= 1  # an image's last token equals its marker, but belongs to the image
    head = len(first_raw) - tail
    if tail == 0 or head <= 0 or any(ids[:head] != first_raw[:head] or len(ids) <= head for ids in raw_ids):
        return None
    expanded = first_ids[: len(first_ids) - tail]
    return len(expanded), [expanded + ids[head:] for ids in raw_ids]


def _common_prefix_length(sequences: Sequence[list[int]]) -> int:
    """Return the number of tokens that all sequences begin with."""
    # A prefix of both the smallest and the greatest sequence is a prefix of all of them.
    low, high = min(sequences), max(sequences)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))


def pad_left(sequences: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """Pad token ids on the left, so that every row ends with its last token.

    Args:
        sequences: Token ids of each row.
        pad: Id of the padding token.

    Returns:
        (ids, mask), both int64 tensors [rows, length of the longest].
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    rows = [torch.tensor(list(sequence), dtype=torch.long) for sequence in sequences]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
    return ids, mask


def build_conversation(
    request: Request,
    image_part: Callable[[bytes], dict[str, Any]],
    as_text: Callable[[str], str] = str,
) -> list[Message]:
    """Build the conversation of a request: system message, worked examples, question.

    Each turn's images and text are in the order that the request asks for.

    Args:
        request: The request.
        image_part: Makes a message part of an encoded image.
        as_text: Applied to every text.

    Returns:
        Messages whose content is a list of parts.
    """

    def text_part(text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": as_text(text)}]

    def user_turn(text: str, images: Sequence[bytes]) -> Message:
        parts = list(map(image_part, images))
        return {
            "role": "user",
            "content": parts + text_part(text) if request.image_first else text_part(text) + parts,
        }

    messages: list[Message] = []
    if request.system:
        messages.append({"role": "system", "content": text_part(request.system)})
    for shot in request.shots:
        messages += [
            user_turn(shot.prompt, shot.images),
            {"role": "assistant", "content": text_part(shot.answer)},
        ]
    return [*messages, user_turn(request.prompt, request.images)]


@lru_cache(maxsize=8)
def decode_rgb_image(data: bytes, longest_side: int | None = None) -> "PILImage":
    """Decode an image to the RGB picture that a model is shown (`images/picture.py`).

    The most recent images are cached, since questions share them; callers must not modify them.

    Args:
        data: The encoded image.
        longest_side: Shrink the image if a side is longer than this many pixels.

    Returns:
        The picture.

    Raises:
        ImageError: If the image cannot be decoded.
    """
    from PIL import Image

    image = make_picture(data).pixels.convert("RGB")
    if longest_side is not None:
        image.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    return image
