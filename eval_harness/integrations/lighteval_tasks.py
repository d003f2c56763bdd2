"""The benchmarks as tasks of lighteval, with our models behind its custom-model way.

    medprobe export-lighteval data/mediconfusion --out tasks
    python -m eval_harness.integrations.lighteval_tasks custom openai:NAME tasks/medprobe_mediconfusion.py medprobe_mediconfusion \
        --custom-tasks tasks/medprobe_mediconfusion.py --save-details --output-dir out

Our prompts, our reader, our metrics; `medprobe submit` takes the details. The model is any `--model` of `medprobe eval`: lighteval's own
endpoints leave images out. Run as a module, lighteval loads only the given tasks: 0.13 imports each of its own at every start, and one of
them fetches a file from a server. Imported by lighteval only; needs the extra `lighteval`. Format: lighteval 0.13.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lighteval.metrics.metrics_sample import SampleLevelComputation
from lighteval.metrics.utils.metric_utils import CorpusLevelMetric
from lighteval.models.abstract_model import LightevalModel
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.registry import Registry
from lighteval.tasks.requests import Doc, SamplingMethod
from lighteval.utils.cache_management import SampleCache

from dataset_builders.images.lookup import as_png
from eval_harness.benchmarks import spec
from eval_harness.integrations.reading.lighteval_details import answers_of
from eval_harness.integrations.reading.sample_records import (
    images_of,
    kept_columns,
    question_of,
    read_answer,
    scores_of_records,
)
from eval_harness.models.interface import Settings
from eval_harness.models.load import load_backend
from eval_harness.prompts import prompt_for
from eval_harness.records.request import Request

RECORD = "medprobe"
"""The key of our record in `Doc.specific`, and the name of our metric."""


class Reading(SampleLevelComputation):
    """Reads an answer as `medprobe score` does; the record is a text, so that the details can hold it."""

    def __init__(self, family: str) -> None:
        self.family = family

    def compute(self, doc: Doc, model_response: ModelResponse, **kwargs: Any) -> str:
        question = json.loads(doc.specific[RECORD])
        [answer] = answers_of({"text": list(model_response.text)})
        return json.dumps(kept_columns(question) | read_answer(self.family, question, question["question"], answer))


def table(task: str, family: str, data: str, revision: str | None, split: str) -> list[LightevalTaskConfig]:
    """lighteval's table of one task: the questions of a dataset (folder or Hub repository)."""

    def document(row: Mapping[str, Any], name: str | None = None) -> Doc:
        question = question_of(family, row)
        prompt = prompt_for(family, None, question["question_type"])
        return Doc(
            query=prompt.render(question["question"], question["options"]),
            choices=[str(option) for option in question["options"]],
            gold_index=[int(index) for index in question["answer"]],
            images=images_of(row) or None,
            specific={
                "question_id": question["question_id"],
                RECORD: json.dumps(kept_columns(question) | {"question": question["question"]}),
            },
        )

    def summed_up(records: Sequence[str]) -> dict[str, float]:
        """Every metric in percent, and `<metric>_stderr`, clustered by shared images."""
        values, errors = scores_of_records(family, [json.loads(record) for record in records])
        return values | {f"{name}_stderr": errors[name] for name in values if name in errors}

    metric = CorpusLevelMetric(
        metric_name=RECORD,
        higher_is_better=True,
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=Reading(family),
        corpus_level_fn=summed_up,
    )
    config = LightevalTaskConfig(
        name=task,
        prompt_function=document,
        hf_repo=data,
        hf_subset="questions",
        hf_revision=revision,
        hf_avail_splits=[split],
        evaluation_splits=[split],
        metrics=[metric],
        generation_size=spec(family).max_tokens,
        stop_sequence=[],
    )
    return [config]


class MedprobeModel(LightevalModel):
    """A model as `--model` of `medprobe eval` names it; a server's address and key stand in OPENAI_BASE_URL and
    OPENAI_API_KEY."""

    add_special_tokens = False
    max_length = 1 << 20
    tokenizer = None

    def __init__(self, config: Any) -> None:
        self.config = config
        self._cache = SampleCache(config)  # lighteval asks for one; nothing of ours is put into it
        self._backend = load_backend(config.model_name, Settings())

    def greedy_until(self, docs: list[Doc]) -> list[ModelResponse]:
        requests = [_request(str(number), doc) for number, doc in enumerate(docs)]
        came = {response.question_id: response for response in self._backend.generate(requests)}
        said = [came[request.question_id] for request in requests]
        return [ModelResponse(text=[each.text] if each.status == "answered" else []) for each in said]

    def loglikelihood(self, docs: list[Doc]) -> list[ModelResponse]:
        raise NotImplementedError("these tasks are answered in words")

    loglikelihood_rolling = loglikelihood


def _request(number: str, doc: Doc) -> Request:
    question = json.loads(doc.specific[RECORD])
    images = [as_png(image) for image in doc.images or ()]
    return Request(
        question_id=number,
        sample=0,
        prompt=doc.query,
        image=images[0] if images else None,
        more_images=tuple(images[1:]),
        options=tuple(doc.choices),
        question_type=question["question_type"],
        max_tokens=doc.generation_size,
    )


def main() -> None:
    """lighteval's command line, with only the given tasks."""
    Registry._load_from_files = staticmethod(lambda files, module_prefix: {})
    Registry._load_from_subdirs = staticmethod(lambda subdirs: {})
    from lighteval.__main__ import app

    app()


if __name__ == "__main__":
    main()
