"""`--dry-run`: the first request as it would be sent, in words; asks nothing and writes nothing but its image."""

from __future__ import annotations

import hashlib
import io
import tempfile
from pathlib import Path

from eval_harness.broken_images import broken_images
from eval_harness.models.interface import Request
from eval_harness.runner import Asked, first_request


def describe_first_request(asked: Asked) -> str:
    """The prompt, its image (saved in the temporary folder), and how the answer would be got. Raises BadInput as `evaluate` does."""
    request, run = first_request(asked)
    generation = ", ".join(f"{name} {value}" for name, value in run.method.generation.items())
    lines = [
        f"{run.model.name} on {run.benchmark.name} · {run.benchmark.split} · {run.benchmark.questions} questions, "
        f"{run.request.samples} answer(s) each",
        f"method {run.method.name}, prompt {run.method.prompt}, {generation}",
        *(f"deviation: {words}" for words in run.deviations),
        f"first question: {request.question_id}; image: {_saved(request)}",
    ]
    if request.system:
        lines += ["--- system", request.system]
    for number, shot in enumerate(request.shots, 1):
        lines += [f"--- example {number}", shot.prompt, f"--- its answer: {shot.answer}"]
    lines += ["--- prompt", request.prompt, "---"]
    if request.candidates:
        lines.append("scored: " + " | ".join(request.candidates))
    return "\n".join(lines)


def _saved(request: Request) -> str:
    """Where the image was saved, with its form and size."""
    if request.image is None:
        return "none is sent"
    from PIL import Image

    broken = broken_images([request.image])
    if broken:
        return f"cannot be shown: {broken[request.image]}"
    with Image.open(io.BytesIO(request.image)) as image:
        kind, size = image.format or "image", image.size
    digest = hashlib.sha256(request.image).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"medprobe-{digest}.{kind.lower()}"
    path.write_bytes(request.image)
    return f"{path} ({kind}, {size[0]} x {size[1]} pixels)"
