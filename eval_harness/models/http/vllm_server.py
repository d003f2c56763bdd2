"""Run vLLM's server for a model and send it requests over HTTP (`--model vllm:ID`).

`vllm serve` runs in its own process on the loopback interface, with a random key. Its command is
looked up on the PATH, so vLLM may be installed in another environment than this package. The server
starts with the first question of a run and keeps running for further runs with the same model. See
also: sending requests to a server (`openai_chat.py`), scoring options with vLLM
(`token_scores.py`).
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import hf_hub_download, snapshot_download
from tqdm import tqdm

from dataset_builders.errors import BadInput, first_line
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import BACKEND_OPTIONS, Settings
from eval_harness.models.local.pretrained import check_adapter, describe_source, load_processor
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model

START_TIMEOUT_S = 3600.0
"""Seconds until a server must be ready, unless `--wait-server` is given.

Weights may have to be downloaded first.
"""

STOP_TIMEOUT_S = 30.0
"""Seconds after which a server that was asked to stop is killed."""

ADAPTER_NAME = "adapter"
"""Name under which the server offers the model with its LoRA adapter."""

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that `--max-lora-rank` accepts."""

# A watcher in the server's process group reads a pipe that this process keeps open. When the pipe
# closes, because the server is no longer needed or because this process has died, it ends the
# whole group: otherwise vLLM's workers would keep the GPU's memory.
_LAUNCHER = (
    'exec 3<&0; { trap "" TERM; read -r _; kill -TERM 0; sleep 15; kill -KILL 0; } <&3 & exec "$@" 3<&- </dev/null'
)


class VllmServer(OpenAIChat):
    """A model served by vLLM on this machine, for as long as this process needs it."""

    is_local = True
    options = BACKEND_OPTIONS

    def __init__(self, model_id: str, settings: Settings) -> None:
        """Check the settings and choose the address; the server starts with the first question.

        Args:
            model_id: Hub id or folder.
            settings: Options; `settings.engine` holds arguments of `vllm serve`.

        Raises:
            BadInput: If there is no command `vllm`, a setting has no counterpart in vLLM, or this
                process is one of several that torchrun started.
        """
        label = f"--model vllm:{model_id}"
        check_vllm_settings(label, settings)
        # Fetching the config of a model on the Hub fixes its commit.
        _fetch(label, model_id, partial(hf_hub_download, filename="config.json"))
        name, revision = describe_source(model_id)
        adapter: Path | None = None
        if settings.adapter is not None:
            adapter = _fetch(f"--model-args adapter {settings.adapter}", settings.adapter, snapshot_download)
            check_adapter(str(adapter))

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        key = secrets.token_hex(16)
        served_name = model_id if adapter is None else ADAPTER_NAME
        # The server gets the template when it starts, because it rejects one in a request.
        client_settings = replace(settings, base_url=f"http://127.0.0.1:{port}/v1", chat_template=None)
        super().__init__(served_name, client_settings, label, key)

        self.model = Model(name=name, revision=revision, kind="open")
        self._folder = tempfile.TemporaryDirectory(prefix="medprobe-vllm-")
        self._log = Path(self._folder.name) / "server.log"
        flags = server_flags(label, model_id, revision, settings, adapter, Path(self._folder.name))
        command = ["vllm", "serve", model_id, "--host", "127.0.0.1", "--port", str(port)]
        self._command = [*command, "--served-model-name", model_id, *flags]
        self._process: subprocess.Popen[bytes] | None = None
        self._version = ""

    async def _ask_all(self, requests: Iterable[Request], emit: Callable[[Response], None]) -> None:
        """Ask the questions as usual, but stop as soon as the server's process has ended."""
        await asyncio.to_thread(self.start)
        asking = asyncio.create_task(super()._ask_all(requests, emit))
        watching = asyncio.create_task(self._until_ended())
        try:
            await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise self._ended_error()
            await asking
        finally:
            asking.cancel()
            watching.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)

    def start(self) -> None:
        """Start the server unless it is running, and wait until it is ready.

        Raises:
            BadInput: If it ends before it is ready, with vLLM's own message, or is not ready in
                time.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.close()  # a server that was killed may have left workers, which hold the memory
        environment = {"VLLM_LOGGING_LEVEL": "WARNING", **os.environ, "VLLM_API_KEY": self._key}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _LAUNCHER, "vllm", *self._command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        patience = self.settings.wait_server or START_TIMEOUT_S
        tqdm.write(f"{self.label}: starting vLLM's server, which may take minutes", file=sys.stderr)
        deadline = time.monotonic() + patience
        while self._get("/health") is None:
            if self._process.poll() is not None:
                raise self._ended_error()
            if time.monotonic() > deadline:
                self.close()
                raise BadInput(
                    f"{self.label}: the server is not ready after {patience:.0f} s. Give it more time with --wait-server SECONDS."
                )
            time.sleep(0.5)
        self._version = json.loads(self._get("/version") or b"{}").get("version", "")

    def close(self) -> None:
        """Stop the server and its workers, and wait until they have ended."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def describe(self) -> dict[str, Any]:
        # The port differs at each start, so the address is left out.
        return super().describe() | {"server": "vllm serve", "vllm": self._version, "engine": self.settings.engine}

    def _get(self, path: str) -> bytes | None:
        """Return the body of a reply with status 200, else None."""
        # `trust_env`: proxies from the environment are not for this machine.
        with suppress(httpx2.HTTPError):
            reply = httpx2.get(self.base_url.removesuffix("/v1") + path, timeout=5, trust_env=False)
            return reply.content if reply.status_code == 200 else None
        return None

    async def _until_ended(self) -> None:
        """Wait until the server's process has ended."""
        while self._process is not None and self._process.poll() is None:
            await asyncio.sleep(0.5)

    def _ended_error(self) -> BadInput:
        """Make the error for a server that has ended, with the last error in the server's log."""
        hint = " Every answer so far is kept; run the same command again to resume." if self.answered_request else ""
        self.close()  # its workers may outlive it, and hold the GPU's memory
        return BadInput(
            f"{self.label}: vLLM's server ended: {last_error(self._log.read_text('utf-8', 'replace'))}.{hint}"
        )


def check_vllm_settings(label: str, settings: Settings) -> None:
    """Check that vLLM can be started on this machine with these settings.

    Args:
        label: The option that named the model, for messages.
        settings: Settings of the run.

    Raises:
        BadInput: If it cannot be started.
    """
    if shutil.which("vllm") is None:
        raise BadInput(
            f"{label}: there is no command `vllm` on the PATH. Install vLLM, which may be in an environment of its own "
            "(docs/scaling.md), or run the model with transformers: leave out vllm:."
        )
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise BadInput(
            f"{label}: torchrun would start one server for each of its processes. Run one process; vLLM itself uses several "
            "GPUs with --model-args '{\"tensor_parallel_size\": 2}' or data_parallel_size."
        )
    for name in ("attn_implementation", "device_map"):
        if getattr(settings, name) is not None:
            raise BadInput(f"--model-args {name}: only for transformers. Leave it out, or give vLLM's own argument.")


def server_flags(
    label: str, model_id: str, revision: str | None, settings: Settings, adapter: Path | None, folder: Path
) -> list[str]:
    """Translate settings into flags of `vllm serve`.

    Args:
        label: The option that named the model, for messages.
        model_id: Hub id or folder.
        revision: Commit of a model on the Hub.
        settings: Settings of the run; `settings.engine` is passed on under vLLM's own names.
        adapter: Folder of a peft adapter.
        folder: Folder to which a chat template is written.

    Returns:
        The flags with their values.

    Raises:
        BadInput: If the model's processor does not support bounds on pixels.
    """
    arguments: dict[str, Any] = {
        "dtype": settings.dtype,
        "revision": revision,
        "trust_remote_code": settings.trust_remote_code or None,
        "quantization": "bitsandbytes" if settings.quantization == "4bit" else settings.quantization,
    }
    if settings.min_pixels is not None or settings.max_pixels is not None:
        # vLLM accepts these bounds only as part of the processor's complete `size`.
        processor, _ = load_processor(label.removeprefix("--model "), model_id, settings)
        arguments["mm_processor_kwargs"] = {"size": dict(processor.image_processor.size)}
    if adapter is not None:
        rank = json.loads((adapter / "adapter_config.json").read_bytes())["r"]
        arguments |= {
            "enable_lora": True,
            "lora_modules": f"{ADAPTER_NAME}={adapter}",
            "max_lora_rank": next((size for size in LORA_RANKS if size >= rank), LORA_RANKS[-1]),
        }
    if settings.chat_template is not None:
        path = folder / "chat_template.jinja"
        path.write_text(settings.chat_template, "utf-8")
        arguments["chat_template"] = str(path)

    flags: list[str] = []
    for name, value in (arguments | settings.engine).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return flags


def last_error(log: str) -> str:
    """Return the message of the last exception in a server's log, or else the last line.

    >>> last_error("(Worker pid=7) ValueError: no memory\\nRuntimeError: Engine core failed")
    'ValueError: no memory'
    >>> last_error("")
    'it printed nothing'
    """
    lines = [_LOG_PREFIX.sub("", line).rstrip() for line in log.splitlines() if line.strip()]
    errors = []
    for line, next_line in pairwise([*lines, ""]):
        if match := re.search(r"\b[\w.]*(?:Error|Exception|error): .+", line):
            # The reason may be on the next line, which is then indented.
            errors.append(f"{match[0]} {next_line.strip()}" if next_line.startswith(" ") else match[0])
    # A worker fails first and states the cause; the processes above it only report that it failed.
    causes = [error for error in errors if "Engine core" not in error and "initialization failed" not in error]
    return (causes or errors or lines or ["it printed nothing"])[-1].rstrip(".")[:300]


_LOG_PREFIX = re.compile(r"^\([^)]*\) ?(?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
"""Matches what precedes a message in the log: name of the process, level, time, place in the code.
"""


def _fetch(label: str, name: str, download: Callable[[str], Any]) -> Path:
    """Return a folder, or what `download` fetches from the Hub. Raises BadInput if it cannot."""
    try:
        return Path(name if Path(name).is_dir() else download(name)).resolve()
    except (OSError, ValueError) as error:
        raise BadInput(f"{label}: cannot be loaded ({first_line(error)}).") from None
