"""The greedy loop of transformers' `generate` after prompts that are read already, without the preparation of their inputs: that costs a
small model as much as the steps do, and what it prepares is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

if TYPE_CHECKING:
    from eval_harness.models.local.network.network import Context


def write(
    model: Any,
    context: Context,
    step: Callable[..., torch.Tensor],
    processors: LogitsProcessorList,
    options: dict[str, Any],
) -> Any:
    """What `generate` returns for `options`, with the model's own processors and stopping criteria.

    `step` gives the logits [n, 1, vocabulary] of one more token: of ids [n, 1], cache, mask [n, read so far] and positions.
    """
    mask, logits, cache = context.mask, context.logits, context.cache
    assert context.positions is not None
    positions = context.positions[..., -1:]
    # Processors look at prompts as `generate` has them, with their padding first; here it may lie between an image and its question.
    ids = context.ids.gather(1, mask.argsort(dim=1, stable=True))
    config, _ = model._prepare_generation_config(None, **options)
    model._prepare_special_tokens(config, True, ids.device)
    config.max_length = ids.shape[1] + config.max_new_tokens
    processors = model._get_logits_processor(
        config,
        ids.shape[1],
        ids,
        logits_processor=processors,
        device=ids.device,
        model_kwargs={"attention_mask": mask.sort(dim=1).values},
    )
    ended = model._get_stopping_criteria(config, StoppingCriteriaList())
    given, done = [], torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    with model._optimize_model_for_decode():
        while True:
            logits = logits.to(ids.device)
            if config.output_logits:
                given.append(logits)
            token = processors(ids, logits).argmax(-1).masked_fill(done, config.pad_token_id)[:, None]
            ids = torch.cat([ids, token], 1)
            done = done | ended(ids, None)
            if bool(done.all()):
                break
            mask, positions = torch.cat([mask, torch.ones_like(token)], 1), positions + 1
            logits = step(token, cache, mask, positions)[:, -1]
    return GenerateDecoderOnlyOutput(sequences=ids, logits=tuple(given)) if config.output_logits else ids
