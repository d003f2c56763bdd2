"""Run a model over a benchmark: configuration -> plan -> ask -> read -> score -> result.

EvalConfig   the user's options                     config.py
Plan         questions, prompts, model, run.json    plan.py
begin        the run folder, new or resumed         resume.py, shards.py
ask          requests -> answers in the journal     ask.py
sender_of    the model, behind a cache of replies   reply_cache.py
Tracker      counts and scores to trackio or wandb  tracking.py
score_run    journal -> answers -> scores -> files  scoring.py, derive/
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from eval_harness.models.load import keep_loaded, load_backend
from eval_harness.records.result import Result
from eval_harness.runs.ask import ask
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.dry_run import check_sending
from eval_harness.runs.folder import disk_errors, make_run_folder
from eval_harness.runs.plan import Load, Plan, arms_of, make_plan
from eval_harness.runs.reply_cache import Send, sender_of
from eval_harness.runs.resume import begin, record_findings
from eval_harness.runs.scoring import score_run
from eval_harness.runs.shards import Shard, folder_lock, put_together
from eval_harness.runs.tracking import Tracker


def evaluate(config: EvalConfig, load: Load = load_backend, first: int | None = None) -> tuple[Result | None, Path]:
    """Run the model over the selected questions and write the run folder; returns the result and the folder.

    Resumes what the folder already holds of the same request. The result is None where questions are left: in one of several processes
    that was not the last to finish its share, or where only the `first` so many are asked. Raises BadInput for anything the user can fix.
    """
    plan, shard = make_plan(config, load), Shard.of_this_process()
    check_sending(plan)
    send = sender_of(plan)
    folder = config.out or Path("runs") / plan.run.run_id
    with Tracker(config.track, plan.run, shard.name) as tracker:
        return _run(plan, shard, folder, send, tracker, first), folder


def evaluate_arms(config: EvalConfig, load: Load = load_backend) -> tuple[Result | None, Path]:
    """A run, and beside its folder the arms that a metric of the benchmark is compared with, with one loaded model; returns the run.

    Each is a run of its own, which resumes by itself. The one without images comes last: not every model takes a question without.
    Raises BadInput for anything the user can fix, and where no metric of the benchmark has arms.
    """
    load = keep_loaded(load)
    arms = arms_of(make_plan(config, load))
    done = evaluate(config, load)
    for image in arms:
        out = config.out and config.out.with_name(f"{config.out.name}-{image}")
        evaluate(replace(config, image=image, out=out), load)
    return done


def _run(plan: Plan, shard: Shard, folder: Path, send: Send, tracker: Tracker, first: int | None) -> Result | None:
    with disk_errors(folder):
        make_run_folder(folder)
        with shard.taking_part(folder):
            with folder_lock(folder):
                plan = begin(folder, plan, shard)
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
                record_findings(folder, plan.run, plan.backend)
            with folder_lock(folder):
                # Under the lock, so that the result of the process that finishes last is the one that stays.
                if not put_together(folder).issuperset(map(plan.key, plan.instances)):
                    return None
                result = score_run(folder)
    tracker.scored(result)
    return result
