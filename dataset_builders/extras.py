"""Map optional libraries to the extras that install them; a missing library is one line that names the remedy."""

from __future__ import annotations

from importlib.util import find_spec
from types import TracebackType

from dataset_builders.errors import BadInput

EXTRAS = {
    "accelerate": "eval",
    "jinja2": "eval",
    "tokenizers": "eval",
    "torch": "eval",
    "torchvision": "eval",
    "transformers": "eval",
    "bitsandbytes": "bitsandbytes",
    "inspect_ai": "inspect",
    "num2words": "num2words",
    "openpyxl": "vlmevalkit",
    "matplotlib": "plot",
    "peft": "peft",
    "ray": "ray",
    "vllm": "vllm",
    "highdicom": "curation",
    "imagehash": "curation",
    "krippendorff": "curation",
    "nibabel": "curation",
    "open_clip": "curation",
    "pycocotools": "curation",
    "timm": "curation",
    "pydicom": "dicom",
    "rapidocr": "dicom",
    "trackio": "tracking",
    "fastapi": "space",
    "gradio": "space",
    "mcp": "space",
    "starlette": "space",
    "threadpoolctl": "space",
    "uvicorn": "space",
}
"""Import name -> extra in pyproject.toml. A test compares it with what the code imports and what pyproject.toml lists."""


class MissingExtra(BadInput):
    """A library of an extra that is not installed."""

    def __init__(self, *modules: str, extra: str | None = None) -> None:
        extras = extra or ",".join(dict.fromkeys(EXTRAS[module] for module in modules))
        verb = "is" if len(modules) == 1 else "are"
        super().__init__(
            f"{', '.join(modules)} {verb} needed here and not installed. Install the extra: "
            f"pip install 'medprobe[{extras}]' (in a checkout: pip install '.[{extras}]')."
        )


def require(*modules: str) -> None:
    """Raise MissingExtra for those of `modules` that are not installed; imports none of them.

    For work that would otherwise fail late. Elsewhere a plain import does: the command line says the same of its ModuleNotFoundError.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        raise MissingExtra(*missing)


def missing_extra(error: BaseException) -> MissingExtra | None:
    """The same line for an import that failed; None where the missing module belongs to no extra."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    if module not in EXTRAS or find_spec(module) is not None:
        return None
    return MissingExtra(module, extra="curation" if _in_curation(error.__traceback__) else None)


def _in_curation(trace: TracebackType | None) -> bool:
    """True if a command of curation wanted it: its extra contains the others, and is better installed at once."""
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith("curation."):
            return True
        trace = trace.tb_next
    return False
