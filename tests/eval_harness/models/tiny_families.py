"""Tiny models with random weights, one per family, built offline from `families.yaml` with the real
classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml

from eval_harness.models.local.tiny_vlm import make_tokenizer

CHAT = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}\n{% for p in m['content'] %}{% if p['type'] == 'image' %}IMAGE"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
TOKENIZER_TEXT = (
    "the image shows a lesion on left right yes no A B C D which side of chest brain is this Question Answer"
)

Options = dict[str, Any]
Piece = list[Any]
"""(name of a class of transformers, its arguments)."""


def sizes(width: int, layers: int) -> Options:
    head = 8 if width == 32 else 64
    heads = width // head
    return {
        "=width": width,
        "=inner": 2 * width,
        "=layers": layers,
        "=head": head,
        "=heads": heads,
        "=pairs": heads // 2,
    }


@dataclass(frozen=True, slots=True)
class Family:
    """A model family.

    `name`: prefix of its class names. `tokens`, `named_tokens`: special tokens, the latter with
    their tokenizer attributes. `pieces`: further parts of the processor. `image`: what its chat
    template writes for an image (None: no template). `text`: config of its text model, at the top
    level if it is `flat`.
    """

    name: str
    images: Piece
    text: Options = field(default_factory=dict)
    vision: Options | None = None
    config: Options = field(default_factory=dict)
    tokens: Sequence[str] = ()
    named_tokens: dict[str, str] = field(default_factory=dict)
    processor: Options = field(default_factory=dict)
    pieces: dict[str, Piece] = field(default_factory=dict)
    image: str | None = None
    bos: bool = False
    flat: bool = False
    model: str | None = None
    processor_name: str | None = None
    bert: bool = False
    """True if its tokenizer adds a first and a last token, as BERT's does."""
    image_tokens: int | None = None
    """Tokens per image, if they are an attribute of the image processor."""


_TABLE = yaml.safe_load(Path(__file__).with_name("families.yaml").read_text())
FAMILIES = {name: Family(**entry) for name, entry in _TABLE.items() if name != "shared"}


def tokenizer(*special: str, named_tokens: dict[str, str] | None = None) -> Any:
    """Make a byte-level tokenizer of 400 tokens, including the given special ones."""
    names = named_tokens or {}
    options = {"extra_special_tokens": names} if names else {}
    return make_tokenizer([TOKENIZER_TEXT], 400, [*special, *names.values(), "<|turn|>"], **options)


def build(name: str, special: tuple[str, ...] = (), width: int = 32, layers: int = 2) -> tuple[Any, Any]:
    """Build (model, processor) of a family.

    `special`: further special tokens; `width`, `layers`: size of its text model if that is a
    decoder.
    """
    import transformers

    family = FAMILIES[name]
    tok = tokenizer(*family.tokens, *special, named_tokens=family.named_tokens)
    if family.bert:
        from tokenizers.processors import TemplateProcessing

        tok.backend_tokenizer.post_processor = TemplateProcessing(
            "<s> $0 </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    values = {**sizes(width, layers), "=vocabulary": len(tok)}

    def resolved(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: resolved(inner, key) for key, inner in value.items()}
        if key == "layer_types":
            return list(islice(cycle(value), layers))
        # Sections are given for a head size of 8.
        if key == "mrope_section":
            return [part * values["=head"] // 8 for part in value]
        if key.endswith(("token_id", "token_index", "token_ids")) and isinstance(value, str | list):
            return tok.convert_tokens_to_ids(value)
        return values.get(value, value) if isinstance(value, str) else value

    def made(piece: Piece) -> Any:
        return getattr(transformers, piece[0])(**piece[1])

    pieces = {
        "image_processor": made(family.images),
        **{key: made(piece) for key, piece in family.pieces.items()},
    }
    if family.image_tokens is not None:
        pieces["image_processor"].image_seq_length = family.image_tokens
    if family.name == "InstructBlip":
        pieces["qformer_tokenizer"] = tokenizer(*special)
    if family.name == "Chameleon":
        tok.sep_token = "<reserved08706>"
    processor = getattr(transformers, family.processor_name or f"{family.name}Processor")(
        tokenizer=tok, **pieces, **family.processor
    )
    if family.image is not None:
        processor.chat_template = "{{ bos_token }}" * family.bos + CHAT.replace("IMAGE", family.image)
    words = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(tok)}
    language = {**resolved(family.text), **words}
    config: Options = language if family.flat else {"text_config": language}
    config |= resolved(family.config)
    if family.vision is not None:
        config["vision_config"] = resolved(family.vision)
    match family.name:
        case "Chameleon":
            config["vocabulary_map"] = dict(tok.get_vocab())
        case "InstructBlip":
            processor.image_token = tok.added_tokens_decoder[tok.convert_tokens_to_ids("<image>")]
            config["qformer_config"] |= {"vocab_size": len(pieces["qformer_tokenizer"])}
        case "Blip":
            language["bos_token_id"] = 5  # another one than the tokenizer puts first, as in BLIP's checkpoints
        case "Kosmos2":
            processor.num_image_tokens = 4
            language["vocab_size"] += 8
    model = family.model or f"{family.name}ForConditionalGeneration"
    return getattr(transformers, model)(getattr(transformers, f"{family.name}Config")(**config)), processor


def make(family: str, folder: Path, *special: str, width: int = 32, layers: int = 2) -> Path:
    """Write a model folder of a family, in float32, with weights large enough that answers differ.

    See `build` for the other arguments.
    """
    import torch

    # Leave the caller's random state unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model, processor = build(family, special, width, layers)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim > 1 or name.endswith("_gate"):
                    parameter.normal_(0, 0.15)
    model.generation_config.update(max_new_tokens=5, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
