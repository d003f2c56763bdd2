"""Load the back end that a `--model` argument names.

Baselines and recorded answers are defined here; every other kind has a module of its own. A model
has a digest of its files or code (a recorded file, a plug-in's code, a folder's weights), so that a
run is never continued by a different model of the same name. Servers, baselines and people have no
digest, because only their names are known.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import pandas as pd

from dataset_builders.errors import BadInput, describe_error, require
from dataset_builders.hub.client import connect, http_status
from eval_harness.derive.reading import STATUS_BY_DELIVERY
from eval_harness.models.interface import MODEL_ARGS, Backend, PromptlessBackend, Settings, check_options, short_digest
from eval_harness.records.baseline_rules import make_baseline
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model


def load_backend(model: str, settings: Settings) -> Backend:
    """Load the back end of a `--model` argument and set its `digest`.

    Args:
        model: The argument: a prefix with a name (`openai:NAME`), a file with a class
            (`my_model.py:MyModel`), or a model id or folder for transformers.
        settings: Options for running the model.

    Returns:
        The back end, ready to answer.

    Raises:
        BadInput: If there is no such model, or it does not support a setting.
    """
    kind, _, name = model.partition(":")
    if settings.engine and kind != "vllm" and ".py:" not in model:
        keys = ", ".join(sorted(settings.engine))
        raise BadInput(f"--model-args: --model {model} does not support {keys}. Available: {', '.join(MODEL_ARGS)}.")
    backend: Any
    match kind:
        case "baseline":
            backend = Baseline(name)
        case "recorded":
            backend = Recorded(Path(name))
            backend.digest = short_digest(backend.path.read_bytes())
        case "human":
            from eval_harness.models.human_reader import HumanReader

            require("fastapi", "uvicorn")
            backend = HumanReader(name)
        case "openai" | "azure":
            from eval_harness.models.http.openai_chat import OpenAIChat

            backend = OpenAIChat(model.removeprefix("openai:"), settings)
        case _ if ".py:" in model:
            from eval_harness.models.plug_in import load_plug_in

            return load_plug_in(model, settings)
        case _:
            backend = _load_weights(model, settings)
    check_options(model, settings, backend.options)
    return cast(Backend, backend)


def _load_weights(model: str, settings: Settings) -> Backend:
    """Load a model for transformers, or for vLLM with the prefix `vllm:`. Raises BadInput."""
    kind, _, name = model.partition(":")
    if model.endswith(".py"):
        problem = f"there is no file {model}."
        if Path(model).is_file():
            problem = f"does not say which class of the file is the model. Add :ClassName, e.g. {model}:MyModel."
        raise BadInput(f"--model {model}: {problem}")
    # A folder's own name may contain a colon.
    if kind != "vllm" and name and not Path(model).exists():
        raise BadInput(
            f"--model {model}: there is no kind of model called {kind!r}. Give a transformers id "
            "or folder, vllm:ID, "
            "openai:NAME, azure:DEPLOYMENT, recorded:FILE, my_model.py:MyModel, human:NAME, or "
            "baseline:chance | always-A | oracle."
        )
    model_id = name if kind == "vllm" else model
    check_model_exists(model, model_id)
    from eval_harness.models.local.pretrained import weights_digest

    backend: Backend
    if kind == "vllm":
        from eval_harness.models.http.vllm_server import VllmServer

        backend = VllmServer(model_id, settings)
    else:
        from eval_harness.models.local.transformers_vlm import TransformersVLM

        backend = TransformersVLM(model_id, settings)
    # After loading: a model of the Hub is in the cache then.
    backend.digest = weights_digest(model_id, settings.adapter)
    return backend


class Baseline(PromptlessBackend):
    """A baseline: guessing, a constant letter, or the answer key itself.

    Its scores put a model's score in context. See also: the rules (`records/baseline_rules.py`),
    runs of a model without the image (`runs/images.py`).
    """

    def __init__(self, name: str) -> None:
        """Set up `chance`, `oracle` or `always-<letter>`. Raises BadInput for any other name."""
        display_name, self._answer = make_baseline(name)
        self.model = Model(name=display_name, kind="baseline", responder="oracle" if name == "oracle" else "guessing")
        self.deviations: list[str] = []

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Answer each request by the rule, in order."""
        yield from map(self._answer, requests)


class Recorded(PromptlessBackend):
    """Recorded answers in a file of any supported format; call `read` before `generate`.

    A question without a record is `missing`; one whose record has no text is `failed`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[tuple[str, int], dict[str, Any]] = {}
        """(question id, sample number) -> record."""
        self.model = Model(name=path.stem)
        self.deviations: list[str] = ["answers were recorded elsewhere; prompt and generation settings are not known"]

    def read(self, questions: pd.DataFrame) -> int:
        """Read the answers to the questions of a split.

        Answers to questions that the run does not ask are ignored.

        Args:
            questions: All questions of the split.

        Returns:
            The number of samples per question.

        Raises:
            BadInput: If the file has problems, such as a question that the split lacks; lists all
                of them.
        """
        from eval_harness.answer_files.harness_formats import read_answer_file

        predictions = read_answer_file(self.path, questions)
        predictions.problems.check(self.path)
        self.answers = {(row["question_id"], row["sample"]): row for row in predictions.rows}
        return predictions.samples

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        """Yield the recorded answer of each request, in order."""
        for request in requests:
            row = self.answers.get((request.question_id, request.sample), {"response": "", "delivery": "missing"})
            status = STATUS_BY_DELIVERY[row["delivery"]]
            details: dict[str, Any] = {name: row.get(name) for name in ("seconds", "reasoning", "finish_reason")}
            error = None if status == "answered" else "no recorded answer"
            yield Response(request.question_id, request.sample, row["response"], status, error=error, **details)

    def describe(self) -> dict[str, Any]:
        return {"recorded_file": self.path.name}


class CachingLoader:
    """A `load_backend` that keeps the most recent local model loaded.

    The next run with the same model and settings gets it as if freshly loaded. Back ends of servers
    are cheap to make and remember what their server supports, so a new one is made. Leaving the
    `with` block releases the model.

    Args:
        load: The function that loads a back end.
    """

    def __init__(self, load: Callable[[str, Settings], Backend] = load_backend) -> None:
        self._load = load
        self._kept: tuple[str, Settings, Backend, list[str]] | None = None
        """Model, settings, back end, and the deviations that it had when it was loaded."""

    def __call__(self, model: str, settings: Settings) -> Backend:
        """Return the back end of a `--model` argument. Raises BadInput as `load_backend` does."""
        if self._kept is not None and self._kept[:2] == (model, settings):
            _, _, backend, deviations = self._kept
            backend.deviations[:] = deviations
            return backend

        self.close()  # before loading the next one: two may not fit into memory
        backend = self._load(model, settings)
        if backend.is_local:
            self._kept = model, settings, backend, list(backend.deviations)
        return backend

    def close(self) -> None:
        """Release the model that is kept."""
        if self._kept is not None:
            self._kept[2].close()
            self._kept = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_model_exists(model: str, name: str) -> None:
    """Check that a model for transformers or vLLM exists, and that transformers is installed.

    The Hub is queried once, and only if the model is not in the local cache. vLLM may be installed
    in another environment, so it is not checked here.

    Args:
        model: The `--model` argument, for the message.
        name: The model id or folder that `model` contains.

    Raises:
        BadInput: If there is neither such a folder nor a readable model on the Hub, the Hub cannot
            be reached, or transformers is missing.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    if Path(name).exists():
        return
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise BadInput(f"--model {model}: there is no folder {name}.")
    if not model.startswith("vllm:"):
        require("torch", "transformers")
    try:
        validate_repo_id(name)
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            connect().model_info(name, timeout=10)
    except Exception as error:  # an invalid id, or any failure between this machine and the Hub
        if isinstance(error, HFValidationError) or http_status(error) in (401, 403, 404):
            raise BadInput(
                f"--model {model}: there is no folder of this name, and no model on the Hub that "
                "you may read. Check its name; for a "
                "private or gated one, run `hf auth login`."
            ) from None
        raise BadInput(
            f"--model {model}: there is no folder of this name, and the Hub cannot be reached "
            f"({describe_error(error)})."
        ) from None
