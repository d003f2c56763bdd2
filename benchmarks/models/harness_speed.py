"""Measure questions per second of the harness on a tiny LLaVA, against loops written by hand.

The model has 36 image tokens; one torch thread; nine questions per image, as in ProbMed.

- ours: `TransformersVLM.generate` with all it does (decoding, resizing, tokens, network, text).
- naive: one question at a time, as public harnesses do: processor, `generate`, decode.
- ideal: what one would write by hand for speed: sorted by length, batches of 32, each image decoded
  once, processor and `generate` on the batch, and nothing else (no journal, no options, no
  settings, no other model).
- overhead: time per question that the runner spends outside the model (journal, progress,
  requests), measured with a model that answers at once.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/models/harness_speed.py
"""

import argparse
import io
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

WORDS = (
    "fracture",
    "effusion",
    "nodule",
    "image",
    "chest",
    "abdomen",
    "brain",
    "left",
    "right",
    "upper",
    "lower",
    "lobe",
)
PER_IMAGE, TOKENS = 9, 8


def requests(images: int, side: int) -> list[Any]:
    """Make questions of 8 to 16 words, nine per drawn image."""
    from PIL import Image

    from eval_harness.records.request import Request

    chance, made_requests = random.Random(0), []
    for image in range(images):
        buffer = io.BytesIO()
        Image.effect_noise((side, side), 30 + image % 60).convert("RGB").save(buffer, "PNG")
        for question in range(PER_IMAGE):
            prompt = " ".join(chance.choice(WORDS) for _ in range(chance.randint(8, 16)))
            made_requests.append(
                Request(f"{image}-{question}", 0, prompt, buffer.getvalue(), ("yes", "no"), "yes_no", max_tokens=TOKENS)
            )
    return made_requests


def ours(model: Any, test_requests: list[Any]) -> dict[str, str]:
    """Answer with the harness; return question id -> text."""
    return {response.question_id: response.text for response in model.generate(test_requests)}


def naive(model: Any, test_requests: list[Any]) -> dict[str, str]:
    """Answer one question at a time; return question id -> text."""
    import torch
    from PIL import Image

    processor, network, texts = model.processor, model.network.model, {}
    for request in test_requests:
        picture = Image.open(io.BytesIO(request.image)).convert("RGB")
        content = [{"type": "image"}, {"type": "text", "text": request.prompt}]
        text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        inputs = processor(text=text, images=picture, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            output = network.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        texts[request.question_id] = processor.decode(
            output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
    return texts


def ideal(model: Any, test_requests: list[Any], size: int = 32) -> dict[str, str]:
    """Answer in batches of `size`, sorted by prompt length; return question id -> text."""
    import torch
    from PIL import Image

    processor, network, texts = model.processor, model.network.model, {}
    pictures = {
        image: Image.open(io.BytesIO(image)).convert("RGB") for image in {request.image for request in test_requests}
    }
    # Prompts of similar length need little padding.
    ordered = sorted(test_requests, key=lambda request: len(request.prompt))
    for start in range(0, len(ordered), size):
        batch = ordered[start : start + size]
        prompts = [f"<s>USER: <image>\n{request.prompt}ASSISTANT:" for request in batch]
        images = [pictures[request.image] for request in batch]
        inputs = processor(text=prompts, images=images, padding=True, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            output = network.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        answers = processor.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        texts.update(zip((request.question_id for request in batch), answers, strict=True))
    return texts


def seconds(run: Callable[[], Any]) -> tuple[float, float]:
    """Return the CPU seconds of the whole process (all threads) and the wall seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def ratios(name: str, base: Callable[[], Any], candidate: Callable[[], Any], count: int, repeats: int) -> None:
    """Print how many times faster `candidate` is than `base`, in CPU time and in wall time.

    Both run alternately `repeats` times; the median of the ratios is printed with their range.
    """
    # Warm-up
    base(), candidate()
    pairs = [(seconds(base), seconds(candidate)) for _ in range(repeats)]
    for clock, kind in enumerate(("CPU", "wall")):
        values = sorted(a[clock] / b[clock] for a, b in pairs)
        rates = [statistics.median(count / pair[side][clock] for pair in pairs) for side in (0, 1)]
        spread = f"(from {values[0]:.2f} to {values[-1]:.2f})"
        print(
            f"{name}, {kind}: {statistics.median(values):.2f} x {spread}; {rates[0]:.0f} -> {rates[1]:.0f} questions/s"
        )


def overhead(folder: Path, repeats: int) -> None:
    """Measure the time per question of a whole run with a model that answers at once."""
    from dataset_builders.build import build
    from eval_harness.models.interface import Settings
    from eval_harness.runs.config import EvalConfig
    from eval_harness.runs.runner import run_evaluation

    plug_in = folder / "instant.py"
    plug_in.write_text(
        "from eval_harness.records.request import Response\n"
        "class Instant:\n    def __init__(self, settings): pass\n"
        "    def generate(self, requests):\n        return (Response(r.question_id, r.sample, "
        "'Yes') for r in requests)\n"
    )
    build("probmed", out=folder / "probmed")
    # The difference is the cost of 100 more answers per question: the time to start cancels out.
    for samples in (1, 101):
        runs = []
        for attempt in range(repeats):
            config = EvalConfig(
                "probmed", f"{plug_in}:Instant", data=str(folder / "probmed"), samples=samples, settings=Settings()
            )
            out = folder / f"run-{samples}-{attempt}"
            start = time.perf_counter()
            result, _ = run_evaluation(replace(config, out=out))
            runs.append(time.perf_counter() - start)
        assert result is not None
        if samples == 1:
            base, questions = statistics.median(runs), result.benchmark.questions
    extra = (statistics.median(runs) - base) / (100 * questions)
    print(
        f"overhead: {1000 * extra:.3f} ms per question outside the model, scoring included "
        f"({100 * questions} questions, images read)"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--side", type=int, default=256, help="pixels of the drawn images")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    import torch

    from eval_harness.models.interface import Settings
    from eval_harness.models.local.tiny_vlm import make_tiny_vlm
    from eval_harness.models.local.transformers_vlm import TransformersVLM

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = TransformersVLM(str(make_tiny_vlm(folder / "tiny")), Settings())
        test_requests = requests(arguments.images, arguments.side)
        our_texts = ours(model, test_requests)
        print(
            f"same answers: naive {our_texts == naive(model, test_requests)}, ideal "
            f"{our_texts == ideal(model, test_requests)}; {len(test_requests)} questions"
        )
        ratios(
            "ours over naive",
            lambda: naive(model, test_requests),
            lambda: ours(model, test_requests),
            len(test_requests),
            arguments.repeats,
        )
        ratios(
            "ours over ideal, nine questions an image",
            lambda: ideal(model, test_requests),
            lambda: ours(model, test_requests),
            len(test_requests),
            arguments.repeats,
        )
        # Bytes after the end of a PNG are ignored: the same pictures, but each counts as another
        # image.
        single = [
            replace(request, image=request.image + bytes([i % 256, i // 256]))
            for i, request in enumerate(test_requests)
        ]
        ratios(
            "ours over ideal, one question an image",
            lambda: ideal(model, single),
            lambda: ours(model, single),
            len(test_requests),
            arguments.repeats,
        )
        options = [
            replace(request, candidates=("yes it is", "no it is not", "it cannot be told"), scoring="sequence")
            for request in single[: len(single) // 3]
        ]
        unbatched = TransformersVLM(str(folder / "tiny"), Settings(batch_size=1))
        # Without shared prefixes, every option is read on its own.
        unbatched._shares = False
        ratios(
            "options scored in batches over one by one",
            lambda: list(unbatched.score(options)),
            lambda: list(model.score(options)),
            len(options),
            arguments.repeats,
        )
        overhead(folder, 3)


if __name__ == "__main__":
    main()
