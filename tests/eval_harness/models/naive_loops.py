"""Hand-written reference for one question at a time.

Processor, `generate`, decode; one forward pass per option, without a cache. Shares no code with the
harness except the tokens of an option, so that agreement is meaningful.
"""

import io
from dataclasses import replace

import torch
from PIL import Image

from eval_harness.models.interface import Settings
from eval_harness.models.local.transformers_vlm import TransformersVLM


def inputs_of(processor, prompt, image, plain="{prompt}"):
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    if getattr(processor, "chat_template", None):
        turn = [
            {
                "role": "user",
                "content": [{"type": "image", "image": picture}, {"type": "text", "text": prompt}],
            }
        ]
        return processor.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
    marker = getattr(processor, "image_token", "")
    marker = getattr(marker, "content", marker)
    # These processors insert their image tokens themselves.
    if getattr(processor, "num_query_tokens", None) or type(processor).__name__ in NO_MARKER:
        marker = ""
    inputs = processor(text=marker + plain.replace("{prompt}", prompt), images=picture, return_tensors="pt")
    # Some processors return labels, which would change the model's output.
    inputs.pop("labels", None)
    return inputs


def encoder_decoder(config):
    return config.is_encoder_decoder or getattr(config.get_text_config(), "is_encoder_decoder", False)


def in_dtype(model, inputs):
    """Convert inputs to the model's dtype.

    For BLIP also as its `generate` does: with its own first token and without the tokenizer's last.
    """
    if type(model).__name__ == "BlipForConditionalGeneration":
        ids = inputs["input_ids"][:, :-1].clone()
        ids[:, 0] = model.config.text_config.bos_token_id
        inputs = {**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}


NO_MARKER = (
    "Florence2Processor",
    "FuyuProcessor",
    "GitProcessor",
    "Kosmos2Processor",
    "BlipProcessor",
)


@torch.inference_mode()
def text_of(model, processor, prompt, image, tokens, plain="{prompt}"):
    """Return the greedy answer."""
    inputs = inputs_of(processor, prompt, image, plain)
    prompt_ids = in_dtype(model, inputs)["input_ids"][0]
    if type(model).__name__ != "BlipForConditionalGeneration":
        inputs = in_dtype(model, inputs)
    output = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, num_beams=1)[0]
    # Some classes return the prompt with the answer, others the answer alone.
    if not encoder_decoder(model.config) and output[: len(prompt_ids)].tolist() == prompt_ids.tolist():
        output = output[len(prompt_ids) :]
    return processor.tokenizer.decode(output, skip_special_tokens=True)


@torch.inference_mode()
def option_score(model, processor, prompt, image, option, plain="{prompt}"):
    """Return the mean log-probability of token ids after the prompt, from one forward pass over
    both.
    """
    inputs = in_dtype(model, inputs_of(processor, prompt, image, plain))
    option_ids = torch.tensor([option])
    if encoder_decoder(model.config):
        text = getattr(model.config, "text_config", model.config)
        start = model.generation_config.decoder_start_token_id
        start = start if start is not None else text.decoder_start_token_id
        inputs["decoder_input_ids"] = torch.cat([torch.tensor([[start]]), option_ids[:, :-1]], 1)
        logits = model(**inputs).logits[0]
    else:
        width = inputs["input_ids"].shape[1]
        inputs["input_ids"] = torch.cat([inputs["input_ids"], option_ids], 1)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        for name in ("token_type_ids", "mm_token_type_ids", "image_embeds_position_mask"):
            if name in inputs:
                # PaliGemma: what follows the prompt is of type 1, causal.
                kind = 1 if name == "token_type_ids" and type(model).__name__.startswith("PaliGemma") else 0
                inputs[name] = torch.cat([inputs[name], torch.full_like(option_ids, kind, dtype=inputs[name].dtype)], 1)
        if "cross_attention_mask" in inputs:
            last_mask = inputs["cross_attention_mask"][:, -1:]
            inputs["cross_attention_mask"] = torch.cat(
                [
                    inputs["cross_attention_mask"],
                    last_mask.expand(-1, len(option), *last_mask.shape[2:]),
                ],
                1,
            )
        logits = model(**inputs).logits[0][-len(option) - 1 : -1]
        assert width > 0
    chosen = logits.float().log_softmax(-1)[torch.arange(len(option)), option_ids[0]]
    return float(chosen.mean())


CANDIDATES = ("left", "on the right side", "no")


def loaded(folder, batch):
    """Load a model folder with the harness."""
    return TransformersVLM(str(folder), Settings(batch_size=batch))


def compare(folder, requests, batch=4):
    """Compare the harness with the naive loops.

    Returns (number of equal texts, largest difference of a score of ps or ps_official, of gd, the
    harness's model).
    """
    backend = loaded(folder, batch)
    model, processor = backend.network.model, backend.processor
    texts = {r.question_id: r.text for r in backend.generate(requests)}
    equal_texts = sum(
        texts[r.question_id] == text_of(model, processor, r.prompt, r.image, r.max_tokens) for r in requests
    )
    differences = {"sequence": 0.0, "sequence_official": 0.0, "next_token": 0.0}
    for scoring, candidates in (
        ("sequence", CANDIDATES),
        ("sequence_official", CANDIDATES),
        ("next_token", ("A", "B", "C")),
    ):
        scoring_requests = [
            replace(r, candidates=candidates, scoring=scoring, options=("x", "y", "z")) for r in requests
        ]
        scores = {r.question_id: r.scores for r in backend.score(scoring_requests)}
        for request in scoring_requests:
            for position, candidate in enumerate(candidates):
                tokens = backend.processing.continuation_ids(candidate)
                if scoring == "next_token":
                    tokens = backend.processing.candidate_first_tokens(request)[position]
                if scoring == "sequence":
                    expected = option_score(model, processor, request.prompt, request.image, tokens)
                else:
                    token_scores = [
                        option_score(model, processor, request.prompt, request.image, [token]) for token in tokens
                    ]
                    token_logprobs = torch.tensor(token_scores)
                    expected = float(token_logprobs.logsumexp(0) if scoring == "next_token" else token_logprobs.mean())
                differences[scoring] = max(differences[scoring], abs(scores[request.question_id][position] - expected))
    return (
        equal_texts,
        max(differences["sequence"], differences["sequence_official"]),
        differences["next_token"],
        backend,
    )
