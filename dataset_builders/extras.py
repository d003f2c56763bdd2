"""Map optional libraries to the extras that install them, and report a missing one in one line."""

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
    "fastapi": "human",
    "krippendorff": "human",
    "uvicorn": "human",
    "highdicom": "curation",
    "imagehash": "curation",
    "nibabel": "curation",
    "open_clip": "curation",
    "pycocotools": "curation",
    "timm": "curation",
    "pydicom": "dicom",
    "rapidocr": "dicom",
    "gradio": "space",
    "mcp": "space",
    "starlette": "space",
    "threadpoolctl": "space",
}
"""Import name -> extra in pyproject.toml. A test compares this with the imports and pyproject.toml.
"""


class MissingExtra(BadInput):
    """A library of an optional extra is not installed."""

    def __init__(self, *modules: str, extra: str | None = None) -> None:
        extras = extra or ",".join(dict.fromkeys(EXTRAS[module] for module in modules))
        verb = "is" if len(modules) == 1 else "are"
        super().__init__(
            f"{', '.join(modules)} {verb} needed here and not installed. Install the extra: "
            f"pip install 'medprobe[{extras}]' (in a checkout: pip install '.[{extras}]')."
        )


def require(*modules: str) -> None:
    """Check that optional libraries are installed, without importing them.

    Use this before work that would otherwise fail late. Elsewhere a plain import is enough: the
    command line turns its ModuleNotFoundError into the same message.

    Args:
        modules: import names, all keys of `EXTRAS`.

    Raises:
        MissingExtra: names the libraries that are not installed.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        raise MissingExtra(*missing)


def missing_extra(error: BaseException) -> MissingExtra | None:
    """Convert a failed import into a `MissingExtra`; None if the module belongs to no extra."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]

    # An installed module that fails to import is broken rather than missing.
    if module not in EXTRAS or find_spec(module) is not None:
        return None
    return MissingExtra(module, extra="curation" if _in_curation(error.__traceback__) else None)


def _in_curation(trace: TracebackType | None) -> bool:
    """Return True if a module of curation failed to import: its extra includes the others."""
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith("curation."):
            return True
        trace = trace.tb_next
    return False
