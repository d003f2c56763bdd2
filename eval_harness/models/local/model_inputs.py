"""Requests -> token ids and pixels, for a processor of transformers: turns for its chat template, or plain text where it has none; whole
prompts, or image prefixes with the questions that share them. And back: reasoning and answer of new tokens.

Used with every engine that runs the network (`transformers_vlm.py`, `vllm_vlm.py`), so that all of them are asked the same tokens. See
also: the wording of the prompt (`prompts.py`), running the network (`network.py`).
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dataset_builders.errors import BadInput, describe_error
from eval_harness.models.interface import Settings
from eval_harness.models.option_tokens import candidate_first_tokens, continuation_ids
from eval_harness.models.thinking import OutputReader, opens_reasoning, reasoning_delimiter_ids, thinking_variables
from eval_harness.records.request import Request

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Message = dict[str, Any]

PLAIN_BY_DEFAULT = ("blip-2", "instructblip", "paligemma", "git", "kosmos-2", "fuyu")
"""Model types without a chat template that are made for plain text: the benchmarks' own per-model prompts, such as MediConfusion's
`mc-blip2`, already hold the words they expect."""

PLAIN_TEMPLATE = (
    "{% for message in messages %}{% for part in message.content if part.type == 'image' %}{{ marker }}{% endfor %}"
    "{{ ' ' if message.role == 'assistant' }}{% for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    "{{ {'system': ' ', 'user': '', 'assistant': end_of_shot}[message.role] }}{% endfor %}"
)
"""A conversation as plain text: image markers, the prompt as it stands. With examples this is the Med-Flamingo form,
`<image>prompt answer<|endofchunk|>...<image>prompt` (MediConfusion, appendix B.1)."""

FLATTEN_TURNS = (
    "{%- set flat = namespace(messages=[]) -%}{%- for message in messages -%}{%- set turn = namespace(text='') -%}"
    "{%- for part in message.content -%}{%- set turn.text = turn.text ~ (part.text if part.type == 'text' else 'IMAGE') -%}{%- endfor -%}"
    "{%- set flat.messages = flat.messages + [{'role': message.role, 'content': turn.text}] -%}{%- endfor -%}"
    "{%- set messages = flat.messages -%}"
)
"""Before a template whose turns are texts: makes each turn one, with a marker for each image."""

TOKEN_TYPE_INPUTS = ("token_type_ids", "mm_token_type_ids")
"""Tensors beside `input_ids` that say which tokens stand for an image; they are cut with the prompt."""

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
"""A model whose processor gives anything else (cross-attention masks, positions) may treat tokens after a prefix differently, so its
prompts are not split."""

DECODER_THREADS = min(8, os.cpu_count() or 1)


@dataclass(slots=True)
class PreparedBatch:
    """A batch ready for the network. `inputs`: the processor's tensors, padded on the left.

    Whole prompts: one row per request; `rows` and `suffixes` are None. Shared prefixes: one row per image, and request i continues
    row `rows[i]` with the token ids `suffixes[i]` (never empty).
    """

    requests: list[Request]
    inputs: dict[str, Any]
    rows: list[int] | None = None
    suffixes: list[list[int]] | None = None

    @property
    def width(self) -> int:
        """Positions of the padded prompts."""
        return int(self.inputs["input_ids"].shape[1]) + max(map(len, self.suffixes or [[]]))

    def lengths(self) -> list[int]:
        """Tokens of each prompt, those of its image included where the processor writes them."""
        mask = self.inputs["attention_mask"].sum(-1).tolist()
        if self.rows is None or self.suffixes is None:
            return [int(length) for length in mask]
        return [int(mask[row]) + len(suffix) for row, suffix in zip(self.rows, self.suffixes, strict=True)]


class InputMaker:
    """Turns requests into `Prepared` batches. Used from one thread at a time; images are decoded by several."""

    def __init__(self, processor: Any, settings: Settings, plain: bool) -> None:
        self.processor = processor
        self.plain = plain
        self.template_variables: dict[str, Any] = dict(settings.chat_template_kwargs)
        self.image_side = settings.max_image_side
        self._decoders = ThreadPoolExecutor(DECODER_THREADS, thread_name_prefix="decode")
        self._control_tokens = _control_token_pattern(processor)
        self._processor_options: dict[str, Any] = {"padding": True}
        if plain:
            chunk = "<|endofchunk|>"
            end = chunk if chunk in processor.tokenizer.get_vocab() else "\n"
            marker = self._written_marker()
            self.template_variables |= {"chat_template": PLAIN_TEMPLATE, "marker": marker, "end_of_shot": end}
        self._image_token = getattr(processor, "image_token_id", None)

    def close(self) -> None:
        """Stop the decoding threads."""
        self._decoders.shutdown(cancel_futures=True)

    def whole(self, requests: Sequence[Request]) -> PreparedBatch:
        """Every prompt with its own image."""
        return PreparedBatch(list(requests), self._tensors(requests))

    def shared(self, requests: Sequence[Request]) -> PreparedBatch | None:
        """Requests grouped by image, each image's tokens once; None where the prompts cannot be split that way.

        The split is by tokens: everything up to the last image token comes from the processor, which expands images; the text after it
        is tokenised alone, and stands in the processor's own output for each group's first request, token for token.
        """
        groups: dict[Any, list[int]] = {}
        for position, request in enumerate(requests):
            groups.setdefault((request.images, request.shots, request.system), []).append(position)
        if self.plain or len(groups) == len(requests) or not requests[0].images:
            return None
        raw = self.raw_ids(requests)
        inputs = self._tensors([requests[members[0]] for members in groups.values()])
        if not set(inputs) <= SHARABLE_INPUTS:
            return None
        rows, suffixes = [0] * len(requests), [[0]] * len(requests)
        prefixes: list[list[int]] = []
        kinds: dict[str, list[list[int]]] = {name: [] for name in TOKEN_TYPE_INPUTS if name in inputs}
        for row, members in enumerate(groups.values()):
            full = inputs["input_ids"][row][inputs["attention_mask"][row].bool()].tolist()
            sequences = _expand_images(full, [raw[member] for member in members], self._image_token)
            if sequences is None:
                return None
            head, whole = sequences
            cut = min(_common_prefix_length(whole), min(map(len, whole)) - 1) if len(members) > 1 else head
            if cut < head:
                return None
            prefixes.append(full[:cut])
            for name, found in kinds.items():
                own: list[int] = inputs[name][row][inputs["attention_mask"][row].bool()].tolist()
                if any(own[cut:]):
                    return None
                found.append(own[:cut])
            for member, ids in zip(members, whole, strict=True):
                rows[member], suffixes[member] = row, ids[cut:]
        pad = self.processor.tokenizer.pad_token_id
        inputs["input_ids"], inputs["attention_mask"] = pad_left(prefixes, pad)
        for name, found in kinds.items():
            inputs[name] = pad_left(found, 0)[0]
        return PreparedBatch(list(requests), inputs, rows, suffixes)

    def rendered_end(self, variables: Mapping[str, Any]) -> str:
        """The text after the question in a prompt, with these template variables; "" if there is no chat template."""
        question = "What is shown?"
        if self.plain:
            return ""
        turn = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        text = str(self.processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False, **variables))
        return text.rpartition(question)[2]

    def _tensors(self, requests: Sequence[Request]) -> dict[str, Any]:
        kwargs = dict(self._processor_options)  # transformers writes into it
        options = {"return_tensors": "pt", "processor_kwargs": kwargs, "return_dict": True}
        conversations = self._conversations(requests, self._decoded(requests))
        return dict(self.processor.apply_chat_template(conversations, **self._template_options, **options))

    def _written_marker(self) -> str:
        """The placeholder of an image in a plain prompt; "" if the processor inserts its image tokens itself."""
        token = getattr(self.processor, "image_token", None)
        marker = getattr(token, "content", token)
        if not marker or getattr(self.processor, "num_query_tokens", None):  # BLIP-2 takes a second marker silently
            return ""
        from PIL import Image

        for options in ({}, {"multi_page": True}):  # GOT-OCR2 takes lists of images with the second alone
            try:
                self.processor(
                    text=[f"{marker} x"], images=[[Image.new("RGB", (64, 64))]], return_tensors="pt", **options
                )
            except (TypeError, ValueError):  # Florence-2, Fuyu: two markers for one image
                continue
            self._processor_options |= options
            return str(marker)
        return ""

    def raw_ids(self, requests: Sequence[Request]) -> list[list[int]]:
        """Token ids with each image as its one marker, not expanded."""
        options = {"chat_template": self.processor.chat_template, "return_dict": False}
        ids: list[list[int]] = self.processor.tokenizer.apply_chat_template(
            self._conversations(requests, None), **self._template_options, **options
        )
        return ids

    @property
    def _template_options(self) -> dict[str, Any]:
        return {**self.template_variables, "add_generation_prompt": True, "tokenize": True}

    def _conversations(
        self, requests: Sequence[Request], pictures: Mapping[bytes, PILImage] | None
    ) -> list[list[Message]]:
        """A question that happens to hold "<image>" or another control token must stay text: a space breaks the token. (What transformers
        offers for it, `sanitize_control_tokens`, not every tokenizer and processor takes.)"""

        def as_text(text: str) -> str:
            return self._control_tokens.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

        def shown(image: bytes) -> dict[str, Any]:
            return {"type": "image"} | ({"image": pictures[image]} if pictures is not None else {})

        return [build_conversation(request, shown, as_text) for request in requests]

    def _decoded(self, requests: Sequence[Request]) -> dict[bytes, PILImage]:
        """Each distinct image decoded once, several at a time."""
        different = list(dict.fromkeys(image for request in requests for image in request.all_images))
        sides = [self.image_side] * len(different)
        return dict(zip(different, self._decoders.map(decode_rgb_image, different, sides), strict=True))


class PromptProcessor:
    """`inputs` makes prompts, `reader` reads new tokens. `plain`: whether prompts are sent as they stand, for want of a chat template.

    `opened`: whether the prompt has begun the model's reasoning. `budget`: most tokens of reasoning, with those that begin and end one;
    None without a budget.
    """

    def __init__(self, model_id: str, processor: Any, settings: Settings) -> None:
        """Raises BadInput if the template cannot do what the settings ask."""
        self.model_id = model_id
        processor.chat_template = settings.chat_template or find_chat_template(processor)
        self.plain = not processor.chat_template
        self.inputs = InputMaker(processor, settings, self.plain)
        template = "plain text" if self.plain else str(processor.chat_template)
        self.template_hash = hashlib.sha256(template.encode()).hexdigest()[:16]
        self.budget: tuple[int, int, int] | None = None
        end = self._switch_thinking(settings, template)
        self.opened = opens_reasoning(end)
        self._space = "" if end[-1:].isspace() else " "
        self._tokenizer = copy.deepcopy(processor.tokenizer)  # the other one is in use in the preparing thread
        self.reader = OutputReader(self._tokenizer, self.opened)

    def _switch_thinking(self, settings: Settings, template: str) -> str:
        """Set the template variables that `--thinking` asks for; returns what the template then writes after a question.

        Raises BadInput if the template cannot do what is asked, or cannot be rendered.
        """
        variables, render = self.inputs.template_variables, self.inputs.rendered_end
        try:
            variables |= thinking_variables(render, variables, settings.thinking)
            end = render(variables)
        except BadInput:
            raise
        except Exception as error:  # a template runs whatever it holds on whatever it is given
            raise BadInput(
                f"--model {self.model_id}: its chat template cannot be used ({describe_error(error)}). Give other --chat-template-kwargs, "
                "or another template with --chat-template FILE."
            ) from None
        if isinstance(settings.thinking, int):
            self.budget = (settings.thinking, *reasoning_delimiter_ids(self.inputs.processor.tokenizer, template))
        return end

    def next_token_forms(self, request: Request) -> list[list[int]]:
        """The tokens that begin each candidate (`option_tokens.next_token_forms`)."""
        return candidate_first_tokens(request, self._tokenize, self.model_id)

    def continuation(self, text: str) -> list[int]:
        """Token ids of an answer as the model would write it after its prompt (`option_tokens.continuation`)."""
        return continuation_ids(text, self._tokenize, self._space)

    def _tokenize(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def find_chat_template(processor: Any) -> str | None:
    """The chat template of a processor, else the one that only its tokenizer has; of several the one named `default`.

    A tokenizer's may be made for turns that are text: it is then given each turn as one, with a marker for each image.
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
        takes_parts = "'type'" not in processor.tokenizer.apply_chat_template(
            turn, chat_template=template, tokenize=False
        )
    except Exception:  # a template may raise anything
        takes_parts = False
    return template if takes_parts else FLATTEN_TURNS.replace("IMAGE", getattr(processor, "image_token", "")) + template


def output_limit(request: Request, own: int | None, settings: Settings) -> tuple[int, str | None]:
    """Tokens to generate, and what is said of it: what the command line says, else what the protocol asks, or the model's `own` limit
    where that is lower."""
    told = settings.max_tokens is not None or settings.thinking is not None
    if told or not own or own >= request.max_tokens:
        return request.max_tokens, None
    return int(own), (
        f"the model's generation config limits answers to {own} of the {request.max_tokens} output tokens allowed "
        "(--max-tokens lifts that)"
    )


def sampling_seed(request: Request) -> int:
    """A seed that depends on the question and the sample number alone."""
    text = f"{request.seed}\0{request.question_id}\0{request.sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _control_token_pattern(processor: Any) -> re.Pattern[str]:
    """The special tokens, and the added ones that the chat template writes (Qwen's `<think>`)."""
    added = processor.tokenizer.added_tokens_decoder.values()
    template = str(getattr(processor, "chat_template", None) or "")
    found = {str(token) for token in added if token.special or str(token) in template}
    found = {token for token in found.union(processor.tokenizer.all_special_tokens) if len(token.strip()) > 1}
    longest_first = sorted(found, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _expand_images(
    full: list[int], raw: list[list[int]], image_token: int | None
) -> tuple[int, list[list[int]]] | None:
    """The position at which the text after the last image begins, and every prompt's ids with its image expanded as in `full`.

    `full` is the processor's output for `raw[0]`'s prompt. They end alike: the text after the last image. What stands before it in
    `raw[0]` must stand in every other prompt too. None where that does not hold.
    """
    first = raw[0]
    tail = _common_prefix_length([full[::-1], first[::-1]])
    while tail and first[len(first) - tail] == image_token:
        tail -= 1  # the marker and the last of the tokens it expands to are the same token; it belongs to the image
    head = len(first) - tail
    if tail == 0 or head <= 0 or any(ids[:head] != first[:head] or len(ids) <= head for ids in raw):
        return None
    expanded = full[: len(full) - tail]
    return len(expanded), [expanded + ids[head:] for ids in raw]


def _common_prefix_length(sequences: Sequence[list[int]]) -> int:
    """How many tokens all sequences begin with (the least and the greatest differ first)."""
    low, high = min(sequences), max(sequences)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))


def pad_left(sequences: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """(ids, mask), both [rows, longest] int64: padding first, so that every row ends with its last token."""
    import torch

    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        if sequence:
            ids[row, width - len(sequence) :] = torch.tensor(list(sequence))
            mask[row, width - len(sequence) :] = 1
    return ids, mask


def build_conversation(
    request: Request, shown: Callable[[bytes], dict[str, Any]], as_text: Callable[[str], str] = str
) -> list[Message]:
    """System message, worked examples as earlier turns, then the question, each turn's images and text in the order of the request.

    `shown` makes a part of an encoded image. `as_text` is applied to every text.
    """

    def said(text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": as_text(text)}]

    def asked(text: str, images: Sequence[bytes]) -> Message:
        parts = list(map(shown, images))
        return {"role": "user", "content": parts + said(text) if request.image_first else said(text) + parts}

    messages: list[Message] = []
    if request.system:
        messages.append({"role": "system", "content": said(request.system)})
    for shot in request.shots:
        messages += [asked(shot.prompt, shot.images), {"role": "assistant", "content": said(shot.answer)}]
    return [*messages, asked(request.prompt, request.images)]


@lru_cache(maxsize=8)
def decode_rgb_image(data: bytes, longest_side: int | None = None) -> PILImage:
    """The picture that a model is shown of an encoded image (`images/picture.py`), in RGB. Raises ImageError where it cannot be decoded.

    `longest_side`: shrink to this many pixels where larger. The few images decoded last are kept, since questions share them;
    callers must not draw on what they get.
    """
    from PIL import Image

    from dataset_builders.images.picture import make_picture

    image = make_picture(data).pixels.convert("RGB")
    if longest_side is not None:
        image.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    return image
