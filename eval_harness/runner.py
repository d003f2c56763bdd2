"""Runs a model over a benchmark: selects questions, asks what the journal does not hold yet, scores at the end.

Not here: the back ends (`models/`), the run folder's files (`runs.py`), reading and scoring answers (`scoring.py`).
"""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from dataset_builders.errors import BadInput
from dataset_builders.lexical_tree import select
from dataset_builders.repository import Repository, open_repository
from dataset_builders.schema import DEFAULT_SPLIT, fingerprint
from eval_harness.models.interface import Backend, Request, Settings
from eval_harness.prompts import prompt_for
from eval_harness.results import Benchmark, Method, Result, model_slug
from eval_harness.runs import Journal, Run, RunRequest, make_run_folder, read_run, record_of, write_run
from eval_harness.scoring import answer_frame, make_result, score_run

METHODS = ("mc",)
"""Ways to get an answer that work today; `gd`, `ps` and `ff` are not there yet."""

MAX_TOKENS = {"mediconfusion": 512, "probmed": 512, "gmai-mmbench": 1024, "halt-medvqa": 1}
"""Room for the answer. HALT-MedVQA: one token at temperature 0 (appendix A, "Experiment Configuration")."""

SAMPLING_TEMPERATURE = 0.7
"""Used for `--samples N` with N > 1; a single sample is always greedy (temperature 0)."""

REQUESTS_AT_ONCE = 256
"""How many requests (with their images) are handed to a back end together; bounds the memory the images take."""


@dataclass(frozen=True)
class Asked:
    """What the user asked for (the options of `medprobe eval`)."""

    benchmark: str
    model: str
    data: str | None = None
    split: str | None = None
    branches: Sequence[str] = ()
    method: str = "mc"
    prompt: str | None = None
    samples: int | None = None
    extraction: str = "ours"
    out: Path | None = None
    limit: int | None = None
    name: str | None = None
    resume: bool = True
    settings: Settings = field(default_factory=Settings)
    argv: Sequence[str] = ()


@dataclass(frozen=True)
class Selection:
    """The questions of a run, with where they came from. `left_out` says in words what was not asked, None if nothing."""

    repository: Repository
    split: str
    questions: pd.DataFrame
    left_out: str | None

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.questions)

    def benchmark(self) -> Benchmark:
        return Benchmark(
            name=self.repository.name,
            format=self.repository.format,
            repo=str(self.repository.data),
            revision=self.repository.revision,
            split=self.split,
            questions=len(self.questions),
            fingerprint=self.fingerprint,
            origin=self.repository.origin,
            selection=self.left_out,
        )


def fingerprint_of(questions: pd.DataFrame) -> str:
    """The fingerprint (see `schema.fingerprint`) of a frame of questions."""
    columns = ["question_id", "question", "options", "question_type", "answer"]
    return fingerprint(zip(*(questions[column] for column in columns), strict=True))


def select_questions(
    benchmark: str, data: str | None, split: str | None, branches: Sequence[str] = (), limit: int | None = None
) -> Selection:
    """Open the dataset and pick the questions.

    `limit` takes the first N questions and completes their cases, since half a case cannot be scored.
    Raises BadInput for an unknown dataset, split, branch, an empty selection, or a dataset of another benchmark.
    """
    where = data or str(Path("data") / benchmark)
    if data is None and not Path(where).is_dir():
        raise BadInput(
            f"--data: there is no folder {where}. Build it (`medprobe build {benchmark}`) "
            "or name a dataset folder or Hub repository with --data."
        )
    repository = open_repository(where)
    if benchmark not in (repository.name, repository.format):
        raise BadInput(f"{where} holds the benchmark {repository.name!r} ({repository.format}), not {benchmark!r}.")
    split = split or DEFAULT_SPLIT[repository.format]
    if split not in repository.splits:
        raise BadInput(f"--split {split}: {where} has the splits {', '.join(repository.splits)}.")
    questions = repository.questions(split)
    left_out = [repository.partial] if repository.partial else []
    if branches:
        questions = questions[select(questions, list(branches))]
        left_out.append("only the branch " + " + ".join(branches))
    if limit is not None:
        if limit < 1:
            raise BadInput(f"--limit {limit}: must be at least 1.")
        if limit < len(questions):
            left_out.append(f"only the first {limit} questions")
        questions = questions[questions["case_id"].isin(questions["case_id"].iloc[:limit])]
    if questions.empty:
        raise BadInput(f"{where}: no question of split {split} is left to ask. Check --branch and --limit.")
    return Selection(repository, split, questions.reset_index(drop=True), "; ".join(left_out) or None)


def load_backend(model: str, settings: Settings) -> Backend:
    """The back end that a `--model` argument names. Raises BadInput when there is none of that name."""
    kind, _, rest = model.partition(":")
    if kind == "baseline" and rest.startswith("text-only:"):
        from eval_harness.models.transformers_vlm import TransformersVLM

        return TransformersVLM(rest.removeprefix("text-only:"), settings, text_only=True)
    if kind == "baseline":
        from eval_harness.models.baselines import load_baseline

        return load_baseline(rest)
    if kind == "recorded":
        from eval_harness.models.recorded import Recorded

        return Recorded(Path(rest))
    if rest and not Path(model).exists():
        raise BadInput(
            f"--model {model}: there is no kind of model called {kind!r}. Give a transformers id or folder, "
            "recorded:FILE, or baseline:chance | always-A | text-only:MODEL | oracle."
        )
    from eval_harness.models.transformers_vlm import TransformersVLM

    return TransformersVLM(model, settings)


def evaluate(asked: Asked) -> tuple[Result, Path]:
    """Run the model over the selected questions and write the run folder; returns the result and the folder.

    Resumes what the folder already holds of the same request. Raises BadInput for anything the user can mend.
    """
    if asked.method not in METHODS:
        raise BadInput(f"--method {asked.method}: not available. There is: {', '.join(METHODS)}.")
    selection = select_questions(asked.benchmark, asked.data, asked.split, asked.branches, asked.limit)
    selected_format = selection.repository.format
    for question_type in selection.questions["question_type"].unique():
        prompt_for(selected_format, asked.prompt, question_type)
    backend = load_backend(asked.model, asked.settings)
    samples = _samples(asked, backend, set(selection.questions["question_id"]))
    run = _describe(asked, selection, backend, samples)
    folder = asked.out or Path("runs") / run.run_id
    _begin(folder, run, selection.questions, asked.resume)
    with Journal(folder / "answers.jsonl") as journal:
        _ask(run, selection, backend, journal, samples)
    return score_run(folder, extraction=asked.extraction), folder


def score_file(asked: Asked) -> Result:
    """Score a bare JSONL file of answers (`model` is `recorded:FILE`); needs no images and writes nothing.

    Raises BadInput as `evaluate` does.
    """
    selection = select_questions(asked.benchmark, asked.data, asked.split)
    backend = load_backend(asked.model, asked.settings)
    samples = _samples(asked, backend, set(selection.questions["question_id"]))
    run = _describe(asked, selection, backend, samples)
    requests = [
        request for batch in _requests(run, selection, _all_keys(selection, samples), False) for request in batch
    ]
    records = [record_of(response) for response in backend.generate(requests)]
    return make_result(run, selection.questions, answer_frame(records), asked.extraction)[0]


def _all_keys(selection: Selection, samples: int) -> list[tuple[int, int]]:
    return [(row, sample) for row in range(len(selection.questions)) for sample in range(samples)]


def _samples(asked: Asked, backend: Backend, known: set[str]) -> int:
    from eval_harness.models.recorded import Recorded

    if isinstance(backend, Recorded):
        backend.check_questions(known)
        if asked.samples not in (None, backend.samples()):
            raise BadInput(f"--samples {asked.samples}: the recorded file holds {backend.samples()} per question.")
        return backend.samples()
    if asked.samples is not None and asked.samples < 1:
        raise BadInput(f"--samples {asked.samples}: must be at least 1.")
    return asked.samples or 1


def _describe(asked: Asked, selection: Selection, backend: Backend, samples: int) -> Run:
    benchmark = selection.benchmark()
    wanted = MAX_TOKENS[benchmark.format]
    deviations = list(backend.deviations)
    if wanted == 1 and not backend.one_token:
        deviations.append("the model cannot be held to one output token")
        wanted = 512
    generation = {"max_tokens": wanted, "temperature": 0.0 if samples == 1 else SAMPLING_TEMPERATURE, "seed": 0}
    request = RunRequest(
        benchmark=benchmark.name,
        data=benchmark.repo or "",
        split=benchmark.split,
        fingerprint=selection.fingerprint,
        model=asked.model,
        method=asked.method,
        prompt=asked.prompt,
        samples=samples,
        generation=generation,
        branches=tuple(asked.branches),
        limit=asked.limit,
    )
    model = backend.model.model_copy(update={"name": asked.name} if asked.name else {})
    digest = hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:8]
    prompts = {
        prompt_for(benchmark.format, asked.prompt, t).name for t in selection.questions["question_type"].unique()
    }
    return Run(
        run_id="-".join([benchmark.name, model_slug(model.name), asked.method, digest]),
        request=request,
        benchmark=benchmark,
        model=model,
        method=Method(
            name=asked.method,
            prompt="+".join(sorted(prompts, reverse=True)),
            shots=0,
            samples=samples,
            generation=generation,
        ),
        deviations=deviations,
        environment={"python": platform.python_version(), "medprobe": _own_version(), **backend.describe()},
        command=shlex.join(["medprobe", *asked.argv]) if asked.argv else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _own_version() -> str:
    try:
        return version("medprobe")
    except PackageNotFoundError:
        return "not installed"


def _begin(folder: Path, run: Run, questions: pd.DataFrame, resume: bool) -> None:
    """Make the run folder, or check that the one there holds the same request."""
    make_run_folder(folder)
    if not resume:
        for name in ("result.json", "answers.parquet", "answers.jsonl", "run.json"):
            (folder / name).unlink(missing_ok=True)
    if not (folder / "run.json").exists():
        write_run(folder, run, questions)
        return
    before, now = read_run(folder).request.model_dump(), run.request.model_dump()
    different = [f"{name} {before[name]!r} -> {now[name]!r}" for name in now if before[name] != now[name]]
    if different:
        raise BadInput(
            f"{folder}: holds another run: {'; '.join(different)}. Give another --out, or --no-resume to start over."
        )
    # The name, the version that finishes the run and the like may change; the request may not.
    write_run(folder, run.model_copy(update={"created_at": read_run(folder).created_at}), questions)


def _ask(run: Run, selection: Selection, backend: Backend, journal: Journal, samples: int) -> None:
    ids = selection.questions["question_id"].tolist()
    keys = _all_keys(selection, samples)
    open_keys = [(row, sample) for row, sample in keys if not journal.is_answered((ids[row], sample))]
    total = len(keys)
    with tqdm(
        total=total,
        initial=total - len(open_keys),
        desc=f"{run.benchmark.name}: {run.model.name}",
        unit="answer",
        disable=None,
        file=sys.stderr,
    ) as bar:
        for requests in _requests(run, selection, open_keys, with_images=backend.needs_images):
            for response in backend.generate(requests):
                journal.append(response)
                bar.update()
            journal.sync()


def _requests(
    run: Run, selection: Selection, open_keys: list[tuple[int, int]], with_images: bool
) -> Iterator[list[Request]]:
    """The requests of the open (row, sample) keys, in lists that bound the memory their images take."""
    records = [{str(name): value for name, value in row.items()} for row in selection.questions.to_dict("records")]
    batch: list[Request] = []
    for (row, sample), images in _with_images(selection, records, open_keys, with_images):
        question = records[row]
        prompt = prompt_for(run.benchmark.format, run.request.prompt, question["question_type"])
        batch.append(
            Request(
                question_id=question["question_id"],
                sample=sample,
                prompt=prompt.render(question["question"], question["options"]),
                image=images.get(question["image_id"]),
                options=tuple(question["options"]),
                question_type=question["question_type"],
                answer=tuple(int(position) for position in question["answer"]),
                max_tokens=run.request.generation["max_tokens"],
                temperature=run.request.generation["temperature"],
                seed=run.request.generation["seed"],
            )
        )
        if len(batch) >= REQUESTS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _with_images(
    selection: Selection, records: list[dict[str, Any]], open_keys: list[tuple[int, int]], with_images: bool
) -> Iterator[tuple[tuple[int, int], dict[str, bytes]]]:
    """Each open key with the images of its case, in the order the cases are stored; one case is held at a time."""
    if not with_images:
        yield from ((key, {}) for key in open_keys)
        return
    waiting: dict[str, list[tuple[int, int]]] = {}
    for row, sample in open_keys:
        waiting.setdefault(records[row]["case_id"], []).append((row, sample))
    for case in selection.repository.cases(selection.split, set(waiting)):
        for key in waiting.pop(case.case_id, []):
            yield key, case.images
    if waiting:
        raise BadInput(
            f"{selection.repository.data}: config `cases` lacks {len(waiting)} case(s) that have questions "
            f"({', '.join(list(waiting)[:3])}). Build the dataset again."
        )
