"""Any `AutoModelForImageTextToText` with its `AutoProcessor` and chat template, on a GPU or the CPU.

The text-only baseline is the same model with the image withheld. Not here: what is asked (`prompts.py`), how the text is read.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Request, Response, Settings
from eval_harness.results import Model

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

AUTO_BATCH_SIZE = 16


class TransformersVLM:
    """A local model. Batches are padded on the left: right padding makes a decoder continue from padding."""

    one_token = True

    def __init__(self, model_id: str, settings: Settings, text_only: bool = False) -> None:
        """Load the model and its processor.

        Raises BadInput when the id or folder cannot be loaded, cannot take images, or has no chat template.
        """
        import torch
        from transformers import AutoModelForImageTextToText, AutoProcessor
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        try:
            self.processor = AutoProcessor.from_pretrained(model_id)
            network: Any = AutoModelForImageTextToText.from_pretrained(model_id, dtype=dtype)
        except (OSError, ValueError, ImportError) as error:
            raise BadInput(_cannot_load(model_id, error)) from None
        if getattr(self.processor, "image_processor", None) is None:
            raise BadInput(
                f"--model {model_id}: its processor takes no images, so it cannot answer questions about them."
            )
        if not getattr(self.processor, "chat_template", None):
            raise BadInput(
                f"--model {model_id}: its processor has no chat template, so the form of its prompts is unknown. "
                "Add a chat_template.jinja to a local copy of the model folder and pass that folder."
            )
        self.processor.tokenizer.padding_side = "left"
        if self.processor.tokenizer.pad_token_id is None:
            self.processor.tokenizer.pad_token = self.processor.tokenizer.eos_token
        self.network = network.to(self.device).eval()
        self.needs_images = not text_only
        self.batch_size = settings.batch_size or AUTO_BATCH_SIZE
        self.deviations: list[str] = ["the image was withheld (text-only baseline)"] if text_only else []
        name = Path(model_id).name if Path(model_id).is_dir() else model_id
        self.model = Model(
            name=f"{name} (text only)" if text_only else name,
            revision=getattr(network.config, "_commit_hash", None),
            kind="baseline" if text_only else "open",
            parameters=network.num_parameters(),
        )

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answer in batches of requests that share their generation settings; an out-of-memory batch is halved, never lost."""
        queue = list(requests)
        while queue:
            batch = _leading(queue, self.batch_size)
            responses = self._answer(batch)
            if responses is None:
                if len(batch) == 1:
                    raise BadInput(
                        f"--model: question {batch[0].question_id} alone does not fit into the {self.device} memory. "
                        "Use a smaller model or a larger device."
                    )
                self.batch_size = len(batch) // 2
                continue
            del queue[: len(batch)]
            yield from responses

    def _answer(self, batch: list[Request]) -> list[Response] | None:
        """The responses of one batch, None when it does not fit into memory."""
        import torch

        start = time.perf_counter()
        try:
            texts = self._continue([self._messages(request) for request in batch], batch[0])
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None
        seconds = (time.perf_counter() - start) / len(batch)
        return [
            Response(request.question_id, request.sample, text, seconds=round(seconds, 4))
            for request, text in zip(batch, texts, strict=True)
        ]

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = [{"type": "text", "text": request.prompt}]
        if self.needs_images:
            if request.image is None:
                raise ValueError(f"question {request.question_id} came without its image")
            content.insert(0, {"type": "image", "image": decode_image(request.image)})
        return [{"role": "user", "content": content}]

    def _continue(self, conversations: list[list[dict[str, Any]]], request: Request) -> list[str]:
        import torch

        inputs = self.processor.apply_chat_template(
            conversations,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
            # A question that happens to hold "<image>" or another control token must stay text.
            sanitize_control_tokens=True,
        ).to(self.device, dtype=self.network.dtype)
        sampling: dict[str, Any] = {
            "do_sample": False,
            "num_beams": 1,
            "temperature": None,
            "top_p": None,
            "top_k": None,
        }
        if request.temperature > 0:
            sampling = {"do_sample": True, "num_beams": 1, "temperature": request.temperature}
            torch.manual_seed(request.seed + request.sample)
        with torch.inference_mode():
            output = self.network.generate(**inputs, max_new_tokens=self._limit(request), **sampling)
        texts: list[str] = self.processor.batch_decode(
            output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        return texts

    def _limit(self, request: Request) -> int:
        """Tokens to generate: what the protocol asks, or the model's own limit where that is lower."""
        own = self.network.generation_config.max_new_tokens
        return min(request.max_tokens, own) if own else request.max_tokens

    def describe(self) -> dict[str, Any]:
        import torch
        import transformers

        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "dtype": str(self.network.dtype).removeprefix("torch."),
            "max_new_tokens_of_model": self.network.generation_config.max_new_tokens,
        }


def decode_image(data: bytes) -> PILImage:
    """The encoded image as RGB, turned as its EXIF orientation says; 16-bit grey is brought to 8 bits, not clipped."""
    from PIL import Image, ImageOps

    image: Image.Image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256).convert("L")
    return image.convert("RGB")


def _settings(request: Request) -> tuple[int, float, int]:
    """What one call to `generate` must share; a sampled batch also shares its sample number, which seeds it."""
    return request.max_tokens, request.temperature, request.sample if request.temperature > 0 else 0


def _leading(queue: list[Request], size: int) -> list[Request]:
    """The longest run of at most `size` requests at the head of the queue that share their settings."""
    count = next((i for i, r in enumerate(queue) if _settings(r) != _settings(queue[0])), len(queue))
    return queue[: min(count, size)]


def _cannot_load(model_id: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "Unrecognized configuration class" in reason:
        reason = "this model cannot take images (transformers knows no image-text-to-text class for it)"
    return f"--model {model_id}: cannot be loaded: {reason} Give a Hugging Face model id or a model folder."
