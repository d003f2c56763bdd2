"""Make a real, tiny image-text-to-text model with random weights, offline.

Writes config, tokenizer, processor, chat template and weights, for the demo and the tests. The
model has learned nothing, so its scores are those of guessing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataset_builders.files import temporary_folder

_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] | upper }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_TRAINING_TEXT = (
    "Answer with the letter of the option. Question: which side is the lesion on? A: left B: right C: none D: both",
    "USER: is there a fracture in this image of the chest? ASSISTANT: yes, no, A, B, C, D, E, F",
    "Options: the brain, the abdomen, the spine, an opacity, an effusion, a nodule, normal.",
)
_IMAGE_SIZE, _PATCH = 56, 14


def make_tokenizer(texts: Sequence[str], size: int, special: Sequence[str], **options: Any) -> Any:
    """Train a byte-level tokenizer.

    Args:
        texts: The texts to train it on.
        size: Number of tokens.
        special: Special tokens, in addition to those for padding, start, end and unknown text.
        options: Further arguments of `PreTrainedTokenizerFast`.

    Returns:
        The tokenizer of transformers.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>", *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=4096, **names, **options)


def make_tiny_vlm(folder: Path) -> Path:
    """Write a tiny LLaVA-style model folder (about 0.2 M parameters) that `from_pretrained` loads.

    Deterministic. Written to a sibling folder first and renamed, so an interrupted call leaves no
    partial model.

    Args:
        folder: The folder to create.

    Returns:
        `folder`.
    """
    import torch
    from transformers import (
        CLIPImageProcessor,
        CLIPVisionConfig,
        GenerationConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )
    from transformers.utils import logging

    logging.disable_progress_bar()

    tokenizer = make_tokenizer(
        _TRAINING_TEXT, 384, ["<image>"], additional_special_tokens=["<image>"], padding_side="left"
    )
    size = {"height": _IMAGE_SIZE, "width": _IMAGE_SIZE}
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(size=size, crop_size=size, do_center_crop=False),
        tokenizer=tokenizer,
        patch_size=_PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_CHAT_TEMPLATE,
    )
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=_IMAGE_SIZE,
            patch_size=_PATCH,
        ),
        text_config=LlamaConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=len(tokenizer),
            max_position_embeddings=4096,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        ),
        image_token_index=int(tokenizer.vocab["<image>"]),
    )
    # Leave the caller's random state unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlavaForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        max_new_tokens=8,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with temporary_folder(folder.parent, f".{folder.name}.") as partial:
        model.save_pretrained(partial)
        processor.save_pretrained(partial)
        partial.rename(folder)
    return folder
