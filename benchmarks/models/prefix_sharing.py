"""Compare shared image prefixes with whole prompts and with a loop written by hand.

The loop is written for one family of models, and it also reads each image only once. Speed is
measured in answers per CPU second on random models of several families, alternately in one run. The
texts are compared, too.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/models/prefix_sharing.py
        [qwen2_5_vl ...] [--width 1024] [--layers 4] [--side 672]
"""

import argparse
import io
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.models.harness_speed import PER_IMAGE, requests

SIX = ("qwen2_5_vl", "qwen3_vl", "gemma3", "glm4v", "llama4", "llava")
TOKENS, IMAGES_AT_ONCE = 5, 4


def by_hand(model: Any, processor: Any, test_requests: list[Any]) -> dict[str, str]:
    """Answer with a hand-written loop that shares image prefixes; return question id -> text.

    The model's class prefills the turns that contain the images. The loop then chooses tokens
    greedily, on a copied cache and with positions that it counts itself.
    """
    import torch
    from PIL import Image
    from transformers import DynamicCache

    groups: dict[bytes, list[Any]] = {}
    for request in test_requests:
        groups.setdefault(request.image, []).append(request)
    tokenizer, texts, ends = processor.tokenizer, {}, model.generation_config.eos_token_id
    # Qwen-VL's classes keep the offset between positions and tokens that an image causes.
    owner = next((module for module in model.modules() if hasattr(module, "rope_deltas")), None)
    pictures, several = list(groups), IMAGES_AT_ONCE
    for start in range(0, len(pictures), several):
        chosen = pictures[start : start + several]
        turns = [
            [{"role": "user", "content": [{"type": "image", "image": Image.open(io.BytesIO(prefix)).convert("RGB")}]}]
            for prefix in chosen
        ]
        inputs = processor.apply_chat_template(turns, tokenize=True, return_dict=True, return_tensors="pt")
        inputs = {
            name: tensor.to(model.dtype) if tensor.is_floating_point() else tensor for name, tensor in inputs.items()
        }
        cache = DynamicCache(config=model.config.get_text_config())
        model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        members = [request for prefix in chosen for request in groups[prefix]]
        rows = torch.tensor([row for row, prefix in enumerate(chosen) for _ in groups[prefix]])
        # One copy of its image's cache for each question.
        cache.batch_select_indices(rows)
        ends_with = [f"{request.prompt}<|turn|>assistant\n" for request in members]
        # Padded on the left: the last token of every row must be the prompt's.
        tail = tokenizer(ends_with, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt")
        ids, mask = tail["input_ids"], torch.cat([inputs["attention_mask"][rows], tail["attention_mask"]], 1)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        if owner is not None:
            positions = (positions + owner.rope_deltas[rows])[None].expand(3, -1, -1)
        done, written = torch.zeros(len(members), dtype=torch.bool), []
        for _ in range(TOKENS):
            output = model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            )
            token = output.logits[:, -1].argmax(-1).masked_fill(done, tokenizer.pad_token_id)
            written.append(token)
            # Rows that have ended go on as padding until all have ended.
            done |= token == ends
            if bool(done.all()):
                break
            ids, mask = token[:, None], torch.cat([mask, torch.ones_like(token)[:, None]], 1)
            positions = positions[..., -1:] + 1
        answers = tokenizer.batch_decode(torch.stack(written, 1), skip_special_tokens=True)
        texts.update({request.question_id: text for request, text in zip(members, answers, strict=True)})
    return texts


def model_of(family: str, folder: Path, width: int, layers: int, side: int) -> Any:
    """Make a random model of a family and load it as the harness does.

    Its images have `side` pixels, and its attention windows are as wide as those of real models.
    """
    from eval_harness.models.interface import Settings
    from eval_harness.models.local.transformers_vlm import TransformersVLM
    from tests.eval_harness.models.tiny_families import FAMILIES, make

    if family == "llava":
        # Images of LLaVA have one fixed size.
        square, table = {"height": side, "width": side}, FAMILIES[family]
        images = [table.images[0], {**table.images[1], "size": square, "crop_size": square}]
        FAMILIES[family] = replace(table, images=images, vision={**(table.vision or {}), "image_size": side})
    make(family, folder, width=width, layers=layers)
    config = json.loads((folder / "config.json").read_text())
    for name in ("sliding_window", "attention_chunk_size"):
        if config["text_config"].get(name):
            config["text_config"][name] = 1024
    (folder / "config.json").write_text(json.dumps(config))
    return TransformersVLM(str(folder), Settings())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=SIX)
    parser.add_argument("--width", type=int, default=32, help="hidden size of the text model")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--side", type=int, default=252)
    parser.add_argument("--repeats", type=int, default=6)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    test_requests = [replace(request, max_tokens=TOKENS) for request in requests(arguments.images, arguments.side)]
    times: dict[str, list[tuple[float, ...]]] = {family: [] for family in arguments.families}
    with tempfile.TemporaryDirectory() as name:
        models = {
            family: model_of(family, Path(name) / family, arguments.width, arguments.layers, arguments.side)
            for family in times
        }

        def harness(family: str) -> dict[str, str]:
            return {response.question_id: response.text for response in models[family].generate(test_requests)}

        def whole(family: str) -> dict[str, str]:
            # The switch that the self-test sets: questions are then read with whole prompts.
            models[family]._shares = False
            try:
                return harness(family)
            finally:
                models[family]._shares = models[family].network.may_share

        @torch.inference_mode()
        def loop(family: str) -> dict[str, str]:
            return by_hand(models[family].network.model, models[family].processor, test_requests)

        equal_texts: dict[str, int] = {}
        tokens: dict[str, int] = {}
        for family in times:
            shared_texts, reference_texts = harness(family), (whole(family), loop(family))
            equal_texts[family] = sum(
                all(text.strip() == texts[key].strip() for texts in reference_texts)
                for key, text in shared_texts.items()
            )
            # The length of a prefix is reported with the speed.
            prepared = models[family].processing.shared_prefixes(test_requests[:PER_IMAGE])
            tokens[family] = int(prepared.inputs["input_ids"].shape[1]) if prepared else 0
        for number in range(arguments.repeats):
            # The later ones find warmer CPU caches: reverse the order in every other round.
            order = (harness, whole, loop) if number % 2 else (loop, whole, harness)
            for family, durations in times.items():
                seconds = {}
                for run in order:
                    start = time.process_time()
                    run(family)
                    seconds[run] = time.process_time() - start
                durations.append((seconds[harness], seconds[whole], seconds[loop]))
    for family, durations in times.items():
        our_seconds, whole_prompts, loop_seconds = (statistics.median(texts) for texts in zip(*durations, strict=True))
        shares = "shares prefixes" if models[family].describe()["shared_image_prefix"] else "fast path off"
        print(
            f"{family}, hidden {arguments.width}, {arguments.layers} layers, prefix of "
            f"{tokens[family]} tokens, {shares}: "
            f"{len(test_requests) / our_seconds:.2f} answers per CPU second, "
            f"{whole_prompts / our_seconds:.2f} x whole prompts, {loop_seconds / our_seconds:.2f} "
            "x the loop; "
            f"texts {equal_texts[family]} of {len(test_requests)} equal"
        )


if __name__ == "__main__":
    main()
