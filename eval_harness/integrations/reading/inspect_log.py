"""Reads a log of inspect-ai (`.eval` or JSON) without inspect-ai: which questions were asked, and what came back.

A `.eval` file is a ZIP archive whose members are compressed with Zstandard (method 93, which Python 3.11's zipfile does not know).
Format: inspect_ai/log/_log.py and _recorders/eval.py (0.3.285).
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_of
from dataset_builders.sources.problems import clip
from eval_harness.integrations.described import Described
from eval_harness.store.untrusted import ProblemList

ZIP = b"PK\x03\x04"
ZSTD = 93
LARGEST_MEMBER = 256 << 20
"""Unpacked bytes of one member (a sample with its images, or the header)."""
MOST_UNPACKED = 4 << 30
ENDS = {"max_tokens": "length", "model_length": "length", "stop": "stop", "content_filter": "content_filter"}
"""inspect-ai's stop reasons -> the words of OpenAI's API."""
AGAIN = "Give the log that `inspect eval` wrote, a .eval file or its JSON form."


@dataclass(frozen=True)
class InspectLog:
    """`header`: version, status, eval (task, model, dataset, config). `samples` yields (where, sample)."""

    path: Path
    header: dict[str, Any]
    samples: Callable[[], Iterator[tuple[str, dict[str, Any]]]]

    @property
    def eval(self) -> dict[str, Any]:
        found = self.header.get("eval")
        return found if isinstance(found, dict) else {}


def recognises(path: Path) -> bool:
    """Whether a file is a log of inspect-ai, by what it holds."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
        if head.startswith(ZIP):
            if not zipfile.is_zipfile(path):
                return b"_journal/" in head  # a log that was cut short, which `open_log` says
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            return "header.json" in names or any(name.startswith("_journal/") for name in names)
    except (OSError, zipfile.BadZipFile):
        return False
    text = head.lstrip()
    return text.startswith(b"{") and b'"eval"' in text and b'"version"' in text and b'"status"' in text


def open_log(path: Path) -> InspectLog:
    """Raises BadInput for a damaged log, and one that was not finished."""
    try:
        with path.open("rb") as file:
            zipped = file.read(len(ZIP)) == ZIP
        log = _open_zip(path) if zipped else _open_json(path)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, pa.ArrowException) as error:
        raise BadInput(
            f"{path}: is a damaged log of inspect-ai ({str(error).splitlines()[0][:200]}). {AGAIN}"
        ) from None
    if log.header.get("status") != "success":
        raise BadInput(
            f"{path}: this evaluation did not finish (its status is {clip(log.header.get('status'))}). Finish it with "
            "`inspect eval-retry`, then give the new log."
        )
    return log


def _open_json(path: Path) -> InspectLog:
    if path.stat().st_size > MOST_UNPACKED // 8:
        raise ValueError("it is larger than 512 MB; convert it to a .eval file")
    document = json.loads(path.read_bytes())
    samples = document.pop("samples", None) or []

    def each() -> Iterator[tuple[str, dict[str, Any]]]:
        for number, sample in enumerate(samples):
            yield f"{path}, sample {number + 1}", sample

    return InspectLog(path, document, each)


def _open_zip(path: Path) -> InspectLog:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
    if "header.json" not in members:
        raise ValueError("it has no header.json: the evaluation did not finish")
    if sum(info.file_size for info in members.values()) > MOST_UNPACKED:
        raise ValueError("it unpacks to more than 4 GB")
    header = json.loads(_member(path, members["header.json"]))

    def each() -> Iterator[tuple[str, dict[str, Any]]]:
        for name, info in members.items():
            if name.startswith("samples/") and name.endswith(".json"):
                try:
                    yield f"{path}, {name}", json.loads(_member(path, info))
                except (ValueError, pa.ArrowException, zlib.error) as error:
                    raise BadInput(f"{path}, {name}: is damaged ({str(error)[:100]}). {AGAIN}") from None

    return InspectLog(path, header, each)


def _member(path: Path, info: zipfile.ZipInfo) -> bytes:
    """A member, unpacked. Raises ValueError where it is larger than it may be."""
    if info.file_size > LARGEST_MEMBER:
        raise ValueError(f"{info.filename} has {info.file_size:,} bytes")
    if info.compress_type != ZSTD:
        with zipfile.ZipFile(path) as archive, archive.open(info) as member:
            data = member.read(LARGEST_MEMBER + 1)
    else:
        with path.open("rb") as file:
            file.seek(info.header_offset)
            local = file.read(30)
            if len(local) < 30 or local[:4] != ZIP:
                raise ValueError(f"{info.filename} is not where the archive says")
            names, extra = struct.unpack("<HH", local[26:30])
            file.seek(names + extra, io.SEEK_CUR)
            packed = file.read(info.compress_size)
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            data = stream.read(LARGEST_MEMBER + 1)
    if len(data) != info.file_size:
        raise ValueError(f"{info.filename} does not have the size that the archive says")
    return bytes(data)


def describe(path: Path) -> Described:
    """What the log says; a task of ours names benchmark, dataset and split. Raises BadInput as `open_log`, and where a part was asked."""
    log = open_log(path)
    packages, metadata = _mapping(log.eval.get("packages")), _mapping(log.eval.get("metadata"))
    ours = _mapping(metadata.get("medprobe"))
    config = _mapping(log.eval.get("config"))
    left_out = ours.get("left_out") or ("inspect's --limit" if config.get("limit") is not None else None)
    if left_out:
        raise BadInput(
            f"{path}: this evaluation asked a part ({clip(left_out)}). Only a run of the whole split can be scored."
        )
    model = log.eval.get("model")
    return Described(
        harness=f"inspect-ai {packages.get('inspect_ai', '')}".strip(),
        benchmark=_text(ours.get("benchmark")),
        model=_text(model),
        data=_text(ours.get("data")),
        split=_text(ours.get("split")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def read(path: Path, questions: pd.DataFrame, found: ProblemList) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(where, question id, journal record) of every sample. A log of another version of the dataset is noted in `found`."""
    log = open_log(path)
    ours = _mapping(_mapping(log.eval.get("metadata")).get("medprobe"))
    if (mark := ours.get("fingerprint")) is not None and mark != fingerprint_of(questions):
        found.add(
            str(path), f"asked other questions than this dataset has (fingerprint {clip(mark)}): another version of it"
        )
        return
    options_of = dict(zip(questions["question_id"].astype(str), questions["options"], strict=True))
    for where, identity, record, sample in answers(log):
        known, options = options_of.get(str(identity)), sample.get("choices")
        if known is not None and options is not None and list(options) != list(known):
            found.add(
                where,
                "shows other options, or in another order, than the dataset has: answers by letter mean something else",
            )
        else:
            yield where, identity, record | {"target": sample.get("target")}


def answers(log: InspectLog) -> Iterator[tuple[str, Any, dict[str, Any], dict[str, Any]]]:
    """(where, question id, journal record, sample) of every sample. The id is the metadata's `question_id`, else the sample's own."""
    for where, sample in log.samples():
        metadata, attached = _mapping(sample.get("metadata")), _mapping(sample.get("attachments"))
        identity = metadata.get("question_id", sample.get("id"))

        def resolve(text: str, attached: dict[str, Any] = attached) -> str:
            found = attached.get(text.removeprefix("attachment://")) if text.startswith("attachment://") else None
            return found if isinstance(found, str) else text

        epoch = sample.get("epoch", 1)
        record = {"sample": epoch - 1 if isinstance(epoch, int) and not isinstance(epoch, bool) else -1}
        yield where, identity, record | delivered(sample.get("output"), sample.get("error"), resolve), sample


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def delivered(output: Any, error: Any, resolve: Callable[[str], str]) -> dict[str, Any]:
    """What a model's output says: response, status (failed, refused, answered), finish_reason, reasoning, seconds."""
    output = output if isinstance(output, dict) else {}
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    failed = error is not None or output.get("error") is not None or first is None
    message = first.get("message") if first else None
    text, reasoning = _texts(message.get("content") if isinstance(message, dict) else None, resolve)
    reason = ENDS.get(str(first.get("stop_reason"))) if first else None
    seconds = output.get("time")
    return {
        "response": None if failed else text,
        "status": "failed" if failed else "refused" if reason == "content_filter" else "answered",
        "finish_reason": None if failed else reason,
        "reasoning": None if failed else reasoning,
        "seconds": seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None,
    }


def _texts(content: Any, resolve: Callable[[str], str]) -> tuple[str, str | None]:
    """(what was said, what was thought) of a message's content: a text, or parts of several types."""
    if isinstance(content, str):
        return resolve(content), None
    said: list[str] = []
    thought: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") == "text":
            said.append(resolve(part["text"]))
        elif isinstance(part, dict) and part.get("type") == "reasoning" and isinstance(part.get("reasoning"), str):
            thought.append(resolve(part["reasoning"]))
    return "\n".join(said), "\n".join(thought) or None
