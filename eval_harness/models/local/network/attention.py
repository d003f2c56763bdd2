"""What the layers of a model attend to, read from its config: what decides which fast paths may be tried (`network.py`)."""

from __future__ import annotations

from typing import Any


def is_encoder_decoder(config: Any) -> bool:
    """Whether prompts go into an encoder; InstructBLIP with a T5 says so in its text config alone."""
    text = getattr(config, "text_config", None)
    return bool(config.is_encoder_decoder or getattr(text, "is_encoder_decoder", False))


SHARABLE_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}


def attends_through_cache(model: Any, keeps_deltas: bool) -> bool:
    """Whether tokens after an image depend on those before them through the cache and the position alone.

    Linear attention, states, and positions of the class's own (but for those that it keeps as `rope_deltas`): no. What a class does
    beyond that shows in the self-test and in the first shared batch, which is compared with whole prompts.
    """
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    own_positions = hasattr(getattr(model, "model", model), "get_rope_index")
    bidirectional = getattr(text, "use_bidirectional_attention", None) not in (None, False, "vision")
    return kinds <= SHARABLE_LAYERS and (keeps_deltas or not own_positions) and not bidirectional


def attention_window(model: Any) -> int | None:
    """The shortest reach of a layer of the text model in tokens; padding between an image and its questions uses it up too."""
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or [])
    reach = []
    if getattr(text, "sliding_window", None) and (
        "sliding_attention" in kinds or (not kinds and getattr(text, "use_sliding_window", True))
    ):
        reach.append(int(text.sliding_window))
    if "chunked_attention" in kinds:
        reach.append(int(text.attention_chunk_size))
    return min(reach, default=None)
