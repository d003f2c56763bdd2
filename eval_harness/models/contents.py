"""Digest what answers, so that a run is never continued by another model of the same name: a recorded file, the code of a plug-in, the
weights of a folder. A server and a baseline have none: their names say all that is known.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

from dataset_builders.files import replace_file
from eval_harness.models.interface import Settings


def model_digest(model: str, settings: Settings) -> str | None:
    """The digest of what a `--model` argument names: of the bytes of a file or folder, of a Hub model its commit.

    Call it once the model is loaded: a Hub model is in the cache then.
    """
    kind, _, rest = model.partition(":")
    if kind in ("openai", "azure", "baseline"):
        return None
    if kind == "recorded" or ".py:" in model:
        return _short(Path(rest if kind == "recorded" else model.rpartition(":")[0]).read_bytes())
    from eval_harness.models.local.pretrained import describe_source

    sources = [rest if kind == "vllm" else model, *([settings.adapter] if settings.adapter else [])]
    digests = [
        folder_digest(Path(name)) if Path(name).is_dir() else describe_source(name)[1] or name for name in sources
    ]
    return _short(" ".join(digests).encode())


def code_digest(made: Any) -> str:
    """The digest of the code of an object's class: what its methods do, and its source file; a notebook's has none."""
    functions = [value for value in vars(type(made)).values() if hasattr(value, "__code__")]
    code = "\n".join(part for function in functions for part in _parts(function.__code__)).encode()
    with suppress(OSError, TypeError):
        code += Path(inspect.getfile(type(made))).read_bytes()
    return _short(code)


def folder_digest(folder: Path) -> str:
    """The digest of a model folder's files. It is kept under their names, sizes and times, since weights take minutes to read."""
    from huggingface_hub.constants import HF_HOME

    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    stats = [(path.relative_to(folder).as_posix(), path.stat()) for path in files]
    state = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    kept = Path(HF_HOME) / "medprobe" / f"{_short(repr((folder.resolve(), state)).encode())}.digest"
    if kept.is_file():
        return kept.read_text()
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            whole.update(path.relative_to(folder).as_posix().encode() + hashlib.file_digest(file, "sha256").digest())
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_file(kept, whole.hexdigest().encode())
    return whole.hexdigest()


def _parts(code: CodeType) -> Iterator[str]:
    """What a function does, without where it stands."""
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
