"""Runs a model over a benchmark: asks what the journal does not hold yet, scores at the end.

See also: which questions (`selection.py`), how they are put (`requests.py`), the back ends (`models/`), the run folder's files
(`runs.py`), several processes (`shards.py`), reading and scoring answers (`scoring.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_v1
from eval_harness.benchmarks import spec
from eval_harness.benchmarks.prompt import Prompt
from eval_harness.forms import DEFAULT_FORM, form_before_forms, form_hash, form_named
from eval_harness.models.interface import OPTIONS, Backend, Request, Response, Settings
from eval_harness.models.load import load_backend
from eval_harness.prompts import prompt_for
from eval_harness.results import FOLDER_NAME, Method, Result, model_slug, normal_name, wrong_model_name
from eval_harness.runs.broken_images import without_broken_images
from eval_harness.runs.environment import surroundings
from eval_harness.runs.folder import (
    Journal,
    Run,
    RunRequest,
    disk_trouble,
    make_run_folder,
    read_run,
    record_of,
    write_run,
)
from eval_harness.runs.reply_cache import ReplyCache, Send
from eval_harness.runs.requests import AT_ONCE, Place, Writer, shot_rows, with_shot_images, written
from eval_harness.runs.rescoring import score_run
from eval_harness.runs.scoring import NO_JUDGE, answer_frame, make_result
from eval_harness.runs.selection import Selection, select_questions
from eval_harness.runs.shards import Shard, case_numbers, put_together, set_aside, whole_folder
from eval_harness.submissions.untrusted.envelope import FREE_BYTES, check_size, wrong_free_fields

METHODS = ("mc", "gd", "ps", "ps_official", "ff")

THINKING_TOKENS = 16384
"""Room for reasoning where it is asked for and no budget is given."""

NOT_GENERATION = {
    "model",
    "messages",
    "stream",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "max_new_tokens",
    "logprobs",
    "top_logprobs",
}
"""What `--generation` may not set: it has an option of its own, or would change what an answer is."""

SAMPLING_TEMPERATURE = 0.7
"""Used for `--samples N` with N > 1 (MediConfusion's setting for GPT-4o); a single sample is always greedy (temperature 0)."""


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
    shots: int = 0
    samples: int | None = None
    permute: bool = False
    form: str | None = None
    """Name of the conversation form (`forms.FORMS`); None: the default, or the one a resumed run was begun in."""
    system: str | None = None
    """System message instead of the form's; "" sends none."""
    max_tokens: int | None = None
    """Most output tokens of an answer, reasoning included, instead of the benchmark's."""
    cache: Path | None = None
    """Folder of replies kept across runs."""
    extraction: str = "ours"
    judge: str | None = None
    out: Path | None = None
    limit: int | None = None
    name: str | None = None
    resume: bool = True
    settings: Settings = field(default_factory=Settings)
    argv: Sequence[str] = ()


def evaluate(asked: Asked) -> tuple[Result | None, Path]:
    """Run the model over the selected questions and write the run folder; returns the result and the folder.

    Resumes what the folder already holds of the same request. The result is None in one of several processes that was not the last to
    finish its share. Raises BadInput for anything the user can mend.
    """
    selection, backend, run, shots = _prepared(asked)
    folder = asked.out or Path("runs") / run.run_id
    shard = Shard.of_this_process()
    with disk_trouble(folder):
        make_run_folder(folder)
        cases, everything = case_numbers(selection.questions), all_places(selection, run.request)
        places = shard.places(selection.questions, everything)
        with shard.taking_part(folder):
            with whole_folder(folder):
                run = _begin(folder, run, selection, asked, shard, backend)
                journal = shard.open_journal(folder, cases, _starts_over(asked))
            with journal:
                writer = _writer(run, selection, backend, shots)
                if _ask(run, selection, backend, journal, writer, places, _send(asked, run, backend)):
                    _remember(folder, run, backend)
            with whole_folder(folder):
                # Under the lock, so that the result of the process that finishes last is the one that stays.
                ids = selection.questions["question_id"].tolist()
                if not put_together(folder, cases).issuperset((ids[row], sample) for row, sample in everything):
                    return None, folder
                return score_run(folder, extraction=asked.extraction), folder


@dataclass(frozen=True)
class Size:
    """How much a run would ask: requests, distinct images, characters of all prompts, pixels of the images of the first requests, and
    the most tokens that may come back."""

    requests: int
    images: int
    characters: int
    pixels: tuple[int, ...]
    most_tokens_out: int


def size_of(asked: Asked, images: int = 64) -> Size:
    """What a run would ask, measured on its prompts and on its first `images` images; asks nothing."""
    from PIL import Image

    selection, backend, run, shots = _prepared(asked)
    writer, places = _writer(run, selection, backend, shots), all_places(selection, run.request)
    characters = most = 0
    for batch in written(selection, writer, places, with_images=False):
        for request in batch:
            texts = [request.prompt, request.system or "", *(shot.prompt + shot.answer for shot in request.shots)]
            characters += sum(map(len, texts))
            most += 0 if request.candidates and not getattr(backend, "is_api", False) else request.max_tokens
    pixels: list[int] = []
    if backend.needs_images:
        for batch in written(selection, writer, places[:images], with_images=True):
            for request in batch:
                if request.image is not None:
                    with contextlib.suppress(OSError), Image.open(io.BytesIO(request.image)) as image:
                        pixels.append(image.width * image.height)
    distinct = len(selection.questions[["case_id", "image_id"]].drop_duplicates()) if backend.needs_images else 0
    return Size(len(places), distinct, characters, tuple(pixels), most)


def first_request(asked: Asked) -> tuple[Request, Run]:
    """The first request as it would be sent (`--dry-run`), with its image, and what would be written of the run; asks nothing."""
    selection, backend, run, shots = _prepared(asked)
    places = all_places(selection, run.request)[:1]
    batch = next(iter(written(selection, _writer(run, selection, backend, shots), places, backend.needs_images)))
    return batch[0], run


def score_file(asked: Asked) -> Result:
    """Score a bare JSONL file of answers (`model` is `recorded:FILE`); needs no images and writes nothing.

    Raises BadInput as `evaluate` does.
    """
    selection, backend, run, shots = _prepared(asked)
    writer, places = _writer(run, selection, backend, shots), all_places(selection, run.request)
    requests = [request for batch in written(selection, writer, places, False) for request in batch]
    records = [record_of(response) for response in backend.generate(requests)]
    return make_result(run, selection.questions, answer_frame(records), asked.extraction)[0]


def _prepared(asked: Asked) -> tuple[Selection, Backend, Run, Any]:
    if asked.method not in METHODS:
        raise BadInput(f"--method {asked.method}: not available. There is: {', '.join(METHODS)}.")
    selection = select_questions(asked.benchmark, asked.data, asked.split, asked.branches, asked.limit)
    prompts = _prompts(asked, selection)
    if asked.permute and not all(prompt.shows_options for prompt in prompts):
        raise BadInput("--permute: the prompt shows no options, so there is no order to change. Leave it out.")
    if asked.permute and asked.samples:
        raise BadInput("--permute: takes one answer per option order, so it goes without --samples.")
    if asked.permute and asked.judge:
        raise BadInput("--judge: a judge reads the options as the question has them, so it goes without --permute.")
    if asked.method == "ff" and asked.judge and not spec(selection.repository.format).judged_free_form:
        raise BadInput(
            "--judge: the free-form judge compares MediConfusion's two options. Use --method mc, or leave --judge out."
        )
    if asked.shots < 0:
        raise BadInput(f"--shots {asked.shots}: must be 0 or more.")
    shots = shot_rows(selection, asked.shots) if asked.shots else []
    if asked.max_tokens is not None and asked.max_tokens < 1:
        raise BadInput(f"--max-tokens {asked.max_tokens}: must be at least 1.")
    form_named(asked.form)
    settings = replace(asked.settings, fixed_limit=asked.max_tokens is not None)
    backend = load_backend(asked.model, settings)
    if not getattr(backend, "sees_prompts", True) and (asked.form or asked.system is not None):
        raise BadInput(f"--form, --system: --model {asked.model} is sent no conversation. Leave them out.")
    if asked.method in ("gd", "ps", "ps_official") and not callable(getattr(backend, "score", None)):
        raise BadInput(f"--method {asked.method}: {asked.model} cannot score options. Use --method mc.")
    samples = _samples(asked, backend, selection)
    _check_can_land(asked, selection, backend, samples)
    run = _describe(asked, selection, backend, samples, prompts)
    # Half of what the gate takes: the environment is added to when the run is resumed elsewhere.
    for wrong in wrong_free_fields(run.model_dump(mode="json"), FREE_BYTES // 2):
        raise BadInput(f"{asked.model}: its description has {wrong}.")
    return selection, backend, run, shots


def _check_can_land(asked: Asked, selection: Selection, backend: Backend, samples: int) -> None:
    """Raise BadInput now for what no results store would take later: everything that `submit` limits is known before the first question."""
    check_size(len(selection.questions), samples)
    wrong = wrong_model_name(normal_name(asked.name or backend.model.name))
    if wrong is None and not FOLDER_NAME.fullmatch(selection.repository.name):
        called = selection.repository.name
        wrong = (
            f"{selection.repository.data}: the benchmark's name {called!r} cannot be a folder. Build it under another."
        )
    if wrong:
        raise BadInput(wrong)


def _prompts(asked: Asked, selection: Selection) -> list[Prompt]:
    """The templates of the run, one per question type."""
    kinds = sorted(selection.questions["question_type"].unique(), reverse=True)
    return [prompt_for(selection.repository.format, asked.prompt, kind, asked.method) for kind in kinds]


def _writer(run: Run, selection: Selection, backend: Backend, shots: Any) -> Writer:
    return Writer(
        request=run.request,
        format=run.benchmark.format,
        is_api=bool(getattr(backend, "is_api", False)),
        shots=with_shot_images(selection, shots, backend.needs_images),
    )


def all_places(selection: Selection, request: RunRequest) -> list[Place]:
    """Every (row, sample) that the run asks."""
    return [(row, sample) for row in range(len(selection.questions)) for sample in range(request.samples)]


def _samples(asked: Asked, backend: Backend, selection: Selection) -> int:
    from eval_harness.models.recorded import Recorded

    if asked.permute:
        return int(selection.questions["options"].map(len).max())
    if isinstance(backend, Recorded):
        backend.check_questions(selection.in_split)
        if asked.samples not in (None, backend.samples()):
            raise BadInput(f"--samples {asked.samples}: the recorded file holds {backend.samples()} per question.")
        return backend.samples()
    if asked.samples is not None and asked.samples < 1:
        raise BadInput(f"--samples {asked.samples}: must be at least 1.")
    if asked.method in ("gd", "ps", "ps_official") and (asked.samples or 1) > 1:
        raise BadInput(
            f"--samples {asked.samples}: --method {asked.method} draws nothing, so one sample is all there is."
        )
    return asked.samples or 1


def _deviations(asked: Asked, backend: Backend, selection: Selection) -> list[str]:
    found = list(backend.deviations)
    if asked.shots:
        found.append("the worked examples are questions of the benchmark itself (the paper took PMC-VQA's)")
    if asked.method in ("gd", "ps", "ps_official") and (selection.questions["question_type"] == "multiple").any():
        found.append("questions with several right options were answered with the one of highest likelihood")
    if asked.method == "ff" and not asked.judge:
        found.append(NO_JUDGE)
    return found


def _describe(asked: Asked, selection: Selection, backend: Backend, samples: int, prompts: list[Prompt]) -> Run:
    benchmark = selection.benchmark()
    deviations = _deviations(asked, backend, selection)
    wanted = _max_tokens(asked, backend, benchmark.format, deviations)
    generation = _generation(asked, backend, wanted, sampled=samples > 1 and not asked.permute)
    request = RunRequest(
        benchmark=benchmark.name,
        data=benchmark.repo or "",
        split=benchmark.split,
        fingerprint=selection.fingerprint,
        model=asked.model,
        method=asked.method,
        prompt=asked.prompt,
        shots=asked.shots,
        samples=samples,
        permute=asked.permute,
        generation=generation,
        branches=tuple(asked.branches),
        limit=asked.limit,
    )
    model = backend.model.model_copy(update={"name": normal_name(asked.name or backend.model.name)})
    digest = hashlib.sha256(_in_default_form(request).model_dump_json().encode()).hexdigest()[:8]
    hashes = {"prompt_hash": "+".join(dict.fromkeys(prompt.text_hash for prompt in prompts))}
    if template := getattr(backend, "template_hash", None):
        hashes["template_hash"] = template
    run = Run(
        run_id="-".join([benchmark.name, model_slug(model.name), asked.method, digest]),
        request=request,
        benchmark=benchmark,
        model=model,
        method=Method(
            name=asked.method,
            prompt="+".join(dict.fromkeys(prompt.name for prompt in prompts)),
            shots=asked.shots,
            samples=samples,
            judge={"model": asked.judge, "base_url": asked.settings.base_url} if asked.judge else None,
            generation=generation | hashes,
        ),
        deviations=deviations,
        environment={
            **surroundings(),
            "python": platform.python_version(),
            **backend.describe(),
            **({"price_per_million_tokens": list(asked.settings.price)} if asked.settings.price else {}),
        },
        command=shlex.join(["medprobe", *asked.argv]) if asked.argv else None,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return _in_form(run, generation["form"], backend, prompts) if "form" in generation else run


def _max_tokens(asked: Asked, backend: Backend, format: str, deviations: list[str]) -> int:
    """The most output tokens of an answer: as told, or the benchmark's, with room for the reasoning that was asked for."""
    protocol = spec(format).max_tokens if asked.method != "ff" else 512
    thinking = asked.settings.thinking
    if asked.max_tokens is not None:
        wanted = asked.max_tokens
    elif thinking not in (None, "off"):
        wanted = protocol + (THINKING_TOKENS if thinking == "on" else int(thinking))
    elif protocol == 1 and not backend.one_token:
        deviations.append("the model cannot be held to one output token")
        return 512
    else:
        return protocol
    if protocol == 1 and wanted > 1:
        deviations.append(f"{wanted} output tokens were allowed where the protocol has 1")
    return wanted


def _generation(asked: Asked, backend: Backend, max_tokens: int, sampled: bool) -> dict[str, Any]:
    """Everything about how answers are generated that decides them. Keys beyond the first four stand only where they were given, so that
    the folders of runs begun by earlier versions are found again."""
    settings = asked.settings
    further = dict(settings.generation)
    if wrong := sorted(further.keys() & NOT_GENERATION):
        raise BadInput(f"--generation: {', '.join(wrong)} cannot be set there. Use --max-tokens and the other options.")
    generation: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": further.pop("temperature", SAMPLING_TEMPERATURE if sampled else 0.0),
        "seed": further.pop("seed", 0),
        "permute": asked.permute,
    }
    if getattr(backend, "sees_prompts", True):
        generation["form"] = form_named(asked.form).name
    template = settings.chat_template
    given = {
        "system": asked.system,
        # A server's model that reasons is given more room than the benchmark's, but not more than the user's.
        "fixed_limit": True if asked.max_tokens is not None and getattr(backend, "is_api", False) else None,
        "max_image_side": settings.max_image_side,
        **{name: getattr(settings, name) for name in OPTIONS},
        "chat_template": template and hashlib.sha256(template.encode()).hexdigest()[:16],
        "generation": further,
        "plain_template": settings.plain_template,
        "dtype": settings.dtype,
    }
    return generation | {name: value for name, value in given.items() if value not in (None, {})}


def _in_form(run: Run, form: str, backend: Backend, prompts: Sequence[Prompt]) -> Run:
    """The run put in the conversation form of that name, in its request and in what its result says."""
    generation = run.request.generation | {"form": form}
    request = run.request.model_copy(update={"generation": generation})
    writer = Writer(request, run.benchmark.format, bool(getattr(backend, "is_api", False)))
    systems = [writer.system(prompt, with_examples=request.shots > 0) for prompt in prompts]
    template, kwargs = generation.get("chat_template"), generation.get("chat_template_kwargs", {})
    said = {"form": form, "form_hash": form_hash(writer.form, systems, backend.needs_images, template, kwargs)}
    method = run.method.model_copy(update={"generation": run.method.generation | said})
    return run.model_copy(update={"request": request, "method": method})


def _in_default_form(request: RunRequest) -> RunRequest:
    """The request as one written before forms had names: the default form makes no other folder."""
    generation = {name: value for name, value in request.generation.items() if (name, value) != ("form", DEFAULT_FORM)}
    return request.model_copy(update={"generation": generation})


def _continued(
    folder: Path, run: Run, asked: Asked, backend: Backend, prompts: Sequence[Prompt], selection: Selection
) -> Run:
    """The run to go on with where a folder holds one. Raises BadInput where that is another run.

    A run that was begun before forms had names goes on in the form its back end had then, unless another one is asked for.
    """
    stored = read_run(folder)
    before, now = stored.request.model_dump(), run.request
    kept = before["generation"]
    if before["fingerprint"] == fingerprint_v1(selection.questions):  # begun before fingerprints had version 2
        before["fingerprint"] = now.fingerprint
    if "form" in now.generation and "form" not in kept:
        kept["form"] = form_before_forms(bool(getattr(backend, "is_api", False)))
        # These were options then too, but no part of the request.
        kept |= {name: now.generation[name] for name in ("plain_template", "dtype") if name in now.generation}
        if asked.form is None:
            run = _in_form(run, kept["form"], backend, prompts)
    different = _differences(before, run.request.model_dump())
    if different:
        raise BadInput(
            f"{folder}: holds another run: {'; '.join(different)}. Give another --out, or --no-resume to start over."
        )
    # The name, the version that finishes the run and the like may change; the request may not.
    deviations = list(dict.fromkeys([*run.deviations, *stored.deviations]))
    return run.model_copy(
        update={"created_at": stored.created_at, "deviations": deviations, "environment": stored.environment}
    )


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What two requests differ in, one entry per option."""
    before, now = ({**request, "generation": None, **request["generation"]} for request in (before, now))
    names = dict.fromkeys([*now, *before])
    return [f"{name} {before.get(name)!r} -> {now.get(name)!r}" for name in names if before.get(name) != now.get(name)]


def _begin(folder: Path, run: Run, selection: Selection, asked: Asked, shard: Shard, backend: Backend) -> Run:
    """Write `run.json`, or check that the one there holds the same request. Returns the run as it goes on.

    `--no-resume` starts this process's share over, and with it the whole run where it asks something else. Call inside `whole_folder`.
    """
    questions = selection.questions
    if not (folder / "run.json").exists():
        write_run(folder, run, questions)
        return run
    if not _holds_answers(folder) and not _asks_the_same(folder, run) and not shard.others_live(folder):
        write_run(
            folder, run, questions
        )  # an earlier command ended before it had an answer: there is nothing to go on with
        return run
    if not _starts_over(asked):
        kept = _continued(folder, run, asked, backend, _prompts(asked, selection), selection)
        write_run(folder, kept, questions)
        return kept.model_copy(update={"environment": run.environment})
    for name in ("result.json", "answers.parquet"):
        (folder / name).unlink(missing_ok=True)
    if _asks_the_same(folder, run):
        if shard.world == 1:
            write_run(folder, run, questions)
    elif shard.others_live(folder):
        raise BadInput(f"{folder}: another process is writing another run there. Wait for it, or give another --out.")
    else:
        set_aside(folder)
        write_run(folder, run, questions)
    return run


def _starts_over(asked: Asked) -> bool:
    """`--no-resume`, but for a process that torchrun started again after one of its processes had died."""
    return not asked.resume and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def _holds_answers(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("answers*.jsonl"))


def _asks_the_same(folder: Path, run: Run) -> bool:
    try:
        return read_run(folder).request == run.request
    except BadInput:
        return False


def _remember(folder: Path, run: Run, backend: Backend) -> None:
    """What only showed while the model ran (deviations, settings found) goes into run.json.

    The environment is the one the run was begun in; where a resumed run was finished in another, what differs stands under
    `resumed_with`.
    """
    with whole_folder(folder):
        stored = read_run(folder)
        deviations = list(dict.fromkeys([*stored.deviations, *backend.deviations]))
        now = run.environment | backend.describe()
        begun = {name: value for name, value in stored.environment.items() if name != "resumed_with"}
        different = {name: value for name, value in now.items() if name not in begun or begun[name] != value}
        if begun == run.environment:
            environment = stored.environment | now
        else:
            environment = stored.environment | ({"resumed_with": different} if different else {})
        write_run(folder, stored.model_copy(update={"deviations": deviations, "environment": environment}), None)


def _send(asked: Asked, run: Run, backend: Backend) -> Send:
    """What answers the requests of the run: the back end, behind the cache where there is one."""
    send: Send = backend.generate
    if run.request.method in ("gd", "ps", "ps_official"):
        send = backend.score  # type: ignore[attr-defined]
    if asked.cache is None:
        return send
    cache = ReplyCache(asked.cache, run, backend, getattr(backend, "base_url", None))
    return cache.through(send, streams=getattr(backend, "takes_stream", False))


def _ask(
    run: Run,
    selection: Selection,
    backend: Backend,
    journal: Journal,
    writer: Writer,
    places: list[Place],
    send: Send,
) -> int:
    """Ask what the journal does not hold; returns how many that were."""
    ids = selection.questions["question_id"].tolist()
    unanswered = [(row, sample) for row, sample in places if not journal.is_answered((ids[row], sample))]
    with tqdm(
        total=len(places),
        initial=len(places) - len(unanswered),
        desc=f"{run.benchmark.name}: {run.model.name}",
        unit="answer",
        disable=None,
        file=sys.stderr,
    ) as bar:
        asked: set[tuple[str, int]] = set()

        def noted(batches: Iterable[list[Request]]) -> Iterator[list[Request]]:
            for batch in batches:
                asked.update((request.question_id, request.sample) for request in batch)
                yield batch

        responses: Iterable[Response]
        if getattr(backend, "takes_stream", False):
            batches = written(selection, writer, unanswered, backend.needs_images, at_once=1)
            responses = send(request for batch in noted(batches) for request in batch)
        else:
            batches = written(selection, writer, unanswered, backend.needs_images)
            responses = (response for batch in noted(batches) for response in without_broken_images(send, batch))
        for number, response in enumerate(responses, 1):
            key = (response.question_id, response.sample)
            if key not in asked:
                raise BadInput(
                    f"--model {run.request.model}: answered question {key[0]}, sample {key[1]}, which was not asked, or twice. "
                    "Each request must get exactly one response."
                )
            asked.remove(key)
            journal.append(response)
            bar.update()
            if number % AT_ONCE == 0:
                journal.sync()
        journal.sync()
    return len(unanswered)
