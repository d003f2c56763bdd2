"""Run a model over a benchmark: configuration -> plan -> ask -> read -> score -> result.

EvalConfig   the user's options                     config.py
Plan         questions, prompts, model, run.json    plan.py
begin        the run folder, new or resumed         here, shards.py
ask          requests -> answers in the journal     ask.py
sender_of    the model, behind a cache of replies   reply_cache.py
Tracker      counts and scores to trackio or wandb  tracking.py
score_run    journal -> answers -> scores -> files  scoring.py, derive/
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.fingerprints import digest_facets, digest_prompts, fingerprint_questions
from dataset_builders.journal import encode_entry
from eval_harness.derive.run_files import ANSWERS_FILE, DERIVED_FILES, JUDGE_FILE
from eval_harness.models.interface import Backend, json_description
from eval_harness.models.load import caching_loader, load_backend
from eval_harness.records.names import printable_line
from eval_harness.records.result import Result
from eval_harness.records.run import RunRecord, read_run
from eval_harness.runs.ask import ask
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import check_sending_allowed
from eval_harness.runs.plan import BackendLoader, Plan, comparison_arms, make_plan
from eval_harness.runs.reply_cache import SendRequests, make_sender
from eval_harness.runs.run_folder import make_run_folder, read_run_questions, report_disk_errors, write_run
from eval_harness.runs.run_scoring import score_run
from eval_harness.runs.shards import (
    MERGED_JOURNAL,
    Shard,
    archive_journals,
    folder_lock,
    merge_journals,
    read_answer_records,
)
from eval_harness.runs.tracking import Tracker


def run_evaluation(
    config: EvalConfig, load: BackendLoader = load_backend, first: int | None = None
) -> tuple[Result | None, Path]:
    """Run the model over the selected questions and write the run folder; returns the result and the folder.

    Resumes what the folder already holds of the same request. The result is None where questions are left: in one of several processes
    that was not the last to finish its share, or where only the `first` so many are asked. Raises BadInput for anything the user can fix.
    """
    plan, shard = make_plan(config, load), Shard.of_this_process()
    check_sending_allowed(plan)
    send = make_sender(plan)
    folder = config.out or Path("runs") / plan.run.run_id
    with Tracker(config.track, plan.run, shard.name) as tracker:
        return _run(plan, shard, folder, send, tracker, first), folder


def evaluate_arms(config: EvalConfig, load: BackendLoader = load_backend) -> tuple[Result | None, Path]:
    """A run, and beside its folder the arms that a metric of the benchmark is compared with, with one loaded model; returns the run.

    Each is a run of its own, which resumes by itself. The one without images comes last: not every model takes a question without.
    Raises BadInput for anything the user can fix, and where no metric of the benchmark has arms.
    """
    load = caching_loader(load)
    arms = comparison_arms(make_plan(config, load))
    done = run_evaluation(config, load)
    for image in arms:
        out = config.out and config.out.with_name(f"{config.out.name}-{image}")
        run_evaluation(replace(config, image=image, out=out), load)
    return done


def _run(
    plan: Plan, shard: Shard, folder: Path, send: SendRequests, tracker: Tracker, first: int | None
) -> Result | None:
    with report_disk_errors(folder):
        make_run_folder(folder)
        with shard.taking_part(folder):
            with folder_lock(folder):
                plan = begin_run(folder, plan, shard)
                journal = shard.open_journal(folder)
            with journal:
                generation, count = plan.run.method.generation, plan.run.request.samples
                if count > 1 and generation["temperature"] and plan.config.samples:
                    print(
                        f"--samples {count}: answers are drawn at temperature {generation['temperature']}.",
                        file=sys.stderr,
                    )
                instances = shard.instances(plan.selection.questions, plan.instances)[:first]
                answered_now = ask(plan, journal, instances, send, tracker.answered)
            if answered_now:
                update_run_record(folder, plan.run, plan.backend)
            with folder_lock(folder):
                # Under the lock, so that the result of the process that finishes last is the one that stays.
                if not merge_journals(folder).issuperset(map(plan.key, plan.instances)):
                    return None
                result = score_run(folder)
    tracker.scored(result)
    return result


def begin_run(folder: Path, plan: Plan, shard: Shard) -> Plan:
    """Write `run.json`, or check that the one there holds the same request. Returns the plan as it goes on.

    `--no-resume` sets aside what the folder holds, so that it is begun like a new one. Call inside `folder_lock`. Raises BadInput where
    the folder holds another run, and where one of several processes is to start over.
    """
    if not plan.config.resume:
        if shard.world > 1:
            raise BadInput(f"{folder}: --no-resume: one of several processes cannot start over. Give another --out.")
        archive_journals(folder)
        for name in (ANSWERS_FILE, JUDGE_FILE, *DERIVED_FILES):
            (folder / name).unlink(missing_ok=True)
    if not (folder / "run.json").exists() or not (_holds_answers(folder) or shard.others_live(folder)):
        write_run(folder, plan.run, plan.selection.questions)
        return plan
    stored = read_run(folder)
    plan = _continued(folder, plan, stored)
    environment = {"environment": stored.environment}
    write_run(folder, plan.run.model_copy(update=environment), plan.selection.questions)
    return plan


def _continued(folder: Path, plan: Plan, stored: RunRecord) -> Plan:
    """The plan to go on with where a folder holds a run. Raises BadInput if that is another one."""
    run = plan.run
    different = _differences(stored.request.model_dump(), run.request.model_dump())
    if different:
        raise BadInput(
            f"{folder}: holds another run: {'; '.join(different)}. Give another --out, or --no-resume to start over."
        )
    # The name, the version that finishes the run and the like may change; the request may not.
    deviations = list(dict.fromkeys([*run.deviations, *stored.deviations]))
    run = run.model_copy(update={"created_at": stored.created_at, "deviations": deviations})
    return replace(plan, run=run)


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences between two requests, one entry per option."""
    before, now = ({**request, "generation": None, **request["generation"]} for request in (before, now))
    names = [name for name in dict.fromkeys([*now, *before]) if before.get(name) != now.get(name)]
    words = {"model_digest": "the model's file, code or weights have changed since"}
    return [words.get(name, f"{name} {before.get(name)!r} -> {now.get(name)!r}") for name in names]


def _holds_answers(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("answers*.jsonl"))


def keep_answered_cases(folder: Path) -> None:
    """Make an interrupted run one of the cases that were asked whole, marked as a selection; its journal as it was is kept aside.

    Raises BadInput if no case was asked whole, and while a process is writing the run.
    """
    samples, answers = range(read_run(folder).request.samples), read_answer_records(folder)

    def is_asked(question: Mapping[Any, Any]) -> bool:
        return all((str(question["question_id"]), number) in answers for number in samples)

    keep_cases(folder, is_asked, "that were asked")


def keep_cases(folder: Path, is_kept: Callable[[Mapping[Any, Any]], bool], which: str) -> int:
    """Reduce a run to the cases of which every question is kept, marked as a selection; returns how many questions went.

    Args:
        folder: the run; its journal as it was is kept aside.
        is_kept: told of each question.
        which: completes "only the 5 of 7 questions".

    Raises:
        BadInput: no case would be left, or a process is writing the run.
    """
    with Shard().taking_part(folder), folder_lock(folder):
        run, questions = read_run(folder), read_run_questions(folder)
        answers = read_answer_records(folder)
        kept_rows = pd.Series([is_kept(row) for row in questions.to_dict("records")], index=questions.index)
        whole = kept_rows.groupby(questions["case_id"]).transform("all")
        kept = questions[whole].reset_index(drop=True)
        if whole.all():
            return 0
        if kept.empty:
            raise BadInput(f"{folder}: has no case with only questions {which}. Run it again, or delete the folder.")
        ids = set(kept["question_id"].astype(str))
        words = [run.benchmark.selection, f"only the {len(kept):,} of {len(questions):,} questions {which}"]
        fingerprint = fingerprint_questions(kept)
        benchmark = run.benchmark.model_copy(
            update={
                "questions": len(kept),
                "fingerprint": fingerprint,
                "facets": digest_facets(kept),
                "asked": digest_prompts(kept),
                "selection": "; ".join(filter(None, words)),
            }
        )
        request = run.request.model_copy(update={"fingerprint": fingerprint})
        archive_journals(folder)
        write_run(folder, run.model_copy(update={"benchmark": benchmark, "request": request}), kept)
        replace_file(folder / MERGED_JOURNAL, b"".join(encode_entry(answers[key]) for key in answers if key[0] in ids))
        return len(questions) - len(kept)


def update_run_record(folder: Path, run: RunRecord, backend: Backend) -> None:
    """Write into run.json what became known only while the model ran (deviations, settings found).

    The environment is the one the run was begun in; where it was finished in another, by a resumed run or by another of its processes,
    what differs stands under `resumed_with`.
    """
    with folder_lock(folder):
        stored = read_run(folder)
        deviations = list(dict.fromkeys([*stored.deviations, *map(printable_line, backend.deviations)]))
        now = run.environment | json_description(backend)
        begun = {name: value for name, value in stored.environment.items() if name != "resumed_with"}
        different = {name: value for name, value in now.items() if name not in begun or begun[name] != value}
        if begun == run.environment:
            environment = stored.environment | now
        else:
            environment = stored.environment | ({"resumed_with": different} if different else {})
        found = stored.model_copy(update={"deviations": deviations, "environment": environment})
        write_run(folder, found, None)
