"""Generate honest runs: format x method x back end x kinds of answers x options x names.

Everything that `eval` accepts must be accepted by a store.

See also: submitting and verifying them (`test_honest_runs.py`).
"""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.run_files import ANSWER_TABLE_COLUMNS, read_readings
from eval_harness.records.limits import normalize_name
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation

FORMATS = tuple(BENCHMARKS)
MODEL_NAMES = (
    "Model A", "GPT-4o (2024-08-06)", "50 % off", "=SUM(A1)", "Who?", "O'Brien's VLM", "MedVLM\u00ae 7B", "Qwen2\u20137B",
    "Me\u0301dical", "\u533b\u5b66\u6a21\u578b", "\u533b\u7597\u6a21\u578b", "\u0645\u062f\u0644",
    'A "quoted" name', "back\\slash; DROP TABLE", "+1 -x @y",
    "org/name:tag", "\U0001f9d1\u200d\u2695\ufe0f", "a" * 200, "  spaces \t around ", "&amp; co", "--reproduced", "baseline: mine",
)  # fmt: skip
TEXTS_BY_STYLE = {
    "letters": lambda k: "ABCDEFGHIJ"[k % 10],
    "prose": lambda k: f"The image most likely shows option {'ABCD'[k % 4]}, because of its margins.",
    "declining": lambda k: "I'm sorry, but I can't assist with interpreting medical images.",
    "irrelevant": lambda k: "What a lovely picture, thank you for sharing it.",
    "empty": lambda k: "",
    "blank": lambda k: " \n\t ",
    "yes_no": lambda k: ("Yes.", "no", "Yes, it does. No doubt.")[k % 3],
    "unicode": lambda k: "\u7b54\u6848\u662f B \u2014 \u200b\U0001f642 e\u0301 \x00 \u2028 \ud800",
    "error text": lambda k: ("Error: 429", "Internal Server Error", '{"error": {"code": 500}}')[k % 3],
    "reasoning inline": lambda k: f"<think>First I look. Then B? No.</think>{'AB'[k % 2]}",
    "very long": lambda k: "I am thinking about it. " * 6_000 + "The answer is A.",
    "markup": lambda k: "<script>alert(1)</script> =HYPERLINK(1) ```B``` | C |",
}
"""Style of a response -> its text, given a number."""
SILENT_DELIVERIES = ("held back", "failed")
"""Kinds of answers without a text: the delivery status."""

HONEST_PLUG_IN = """
import math, random
from eval_harness.records.request import Response
from eval_harness.records.result import Model
from tests.eval_harness.store.honest import TEXTS_BY_STYLE

SEED, KINDS = {seed}, {kinds}

class Scripted:
    needs_images = False
    one_token = True
    deviations = []

    def __init__(self, settings):
        self.model = Model(name="scripted", kind="open")

    def describe(self):
        return {{"made_up": True}}

    def generate(self, requests):
        for request in requests:
            draw = random.Random(f"{{SEED}} {{request.question_id}} {{request.sample}}")
            kind, number = draw.choice(KINDS), draw.randrange(100)
            more = dict(seconds=draw.random() * 3, usage=draw.choice([None, (draw.randrange(900), draw.randrange(900))]))
            more["reasoning"] = draw.choice([None, "", "Let me think \\u2026 B", "x" * 3000])
            more["finish_reason"] = draw.choice([None, "stop", "length", "content_filter"])
            if kind == "held back":
                yield Response(request.question_id, request.sample, "", "refused", error="a filter", **more)
            elif kind == "failed":
                yield Response(request.question_id, request.sample, "", "failed", error="HTTP 500")
            else:
                yield Response(request.question_id, request.sample, TEXTS_BY_STYLE[kind](number), **more)

    def score(self, requests):
        for request in requests:
            draw = random.Random(f"{{SEED}} {{request.question_id}}")
            scores = [draw.choice([draw.gauss(-3, 2), draw.gauss(-3, 2), -math.inf, 0]) for _ in request.options]
            yield Response(request.question_id, request.sample, "", seconds=draw.random(), scores=tuple(scores))
"""


@dataclass(frozen=True)
class Case:
    """One honest run."""

    number: int
    family: str
    method: str
    back_end: str
    kinds: tuple[str, ...]
    name: str
    samples: int | None = None
    permute: bool = False
    shots: int = 0
    limit: int | None = None
    extraction: str = "ours"


def cases(seed: int, count: int) -> Iterator[Case]:
    """Yield `count` cases. Formats, methods and names are cycled; the rest is drawn at random."""
    draw = random.Random(seed)
    methods = ("mc", "mc", "gd", "ps", "mc", "ps_official", "ff")
    for number in range(count):
        family, method = FORMATS[number % len(FORMATS)], methods[number % len(methods)]
        if method in ("ps_official", "ff"):
            family = "mediconfusion"
        generates = method in ("mc", "ff")
        back_end = draw.choice(["plug-in", "plug-in", "recorded", "baseline"]) if method == "mc" else "plug-in"
        kinds = tuple(draw.sample([*TEXTS_BY_STYLE, *SILENT_DELIVERIES], draw.choice([1, 2, 5])))
        if kinds == ("failed",):  # a run without any answer ends early, which leaves nothing to submit
            kinds = ("failed", "letters")
        shows_options = back_end == "plug-in" and method == "mc" and not family.startswith("probmed")
        permute = shows_options and draw.random() < 0.2
        samples = draw.choice([None, None, 2, 3, 150]) if generates and back_end == "plug-in" and not permute else None
        # too long for a store, which `eval` reports at the 20th answer
        if samples == 150 and "very long" in kinds:
            samples = 3
        yield Case(
            number, family, method, back_end, kinds, MODEL_NAMES[number % len(MODEL_NAMES)], samples, permute,
            shots=draw.choice([0, 0, 1]) if back_end == "plug-in" and method == "mc" and not permute else 0,
            limit=draw.choice([None, None, 4, 10_000]),
            extraction=draw.choice(["ours", "ours", "official"]) if generates and not permute else "ours",
        )  # fmt: skip


def run(case: Case, data: Path, folder: Path) -> Path:
    """Return the run folder that `eval` makes of a case."""
    folder.mkdir(parents=True)
    repository = open_repository(data)
    config = EvalConfig(
        repository.name, "baseline:chance", str(data), method=case.method, samples=case.samples, permute=case.permute,
        shots=case.shots, limit=case.limit, extraction=case.extraction, name=case.name, out=folder / "run",
        argv=("eval", case.family, "--name", case.name),
    )  # fmt: skip
    if case.back_end == "plug-in":
        (folder / f"plug_in_{case.number}.py").write_text(HONEST_PLUG_IN.format(seed=case.number, kinds=case.kinds))
        config = replace(config, model=f"{folder}/plug_in_{case.number}.py:Scripted")
    elif case.back_end == "recorded":
        config = replace(config, model=f"recorded:{_recorded(case, data, folder / 'answers.jsonl')}")
    run_evaluation(config)
    return folder / "run"


def _recorded(case: Case, data: Path, path: Path) -> Path:
    """Write a file of answers; some are null, and some questions have none."""
    repository = open_repository(data)
    draw = random.Random(case.number)
    texts = [kind for kind in case.kinds if kind in TEXTS_BY_STYLE] or ["letters"]
    records = []
    for question in repository.questions("validation" if case.family == "gmai-mmbench" else "test")["question_id"]:
        text = TEXTS_BY_STYLE[draw.choice(texts)](draw.randrange(100))
        response = None if draw.random() < 0.1 else text
        if draw.random() < 0.95 or not records:
            records.append(json.dumps({"question_id": question, "response": response}))
    path.write_text("\n".join(records) + "\n")
    return path


def differences(run: Path, landed: Path) -> list[str]:
    """Compare a run's own result and answers with what a store has.

    Only normalized names and the location of the questions may differ.
    """
    submitted, stored = read_result(run / "result.json"), read_result(landed / "result.json")
    differing = [
        name
        for name in ("scores", "breakdown", "statuses", "method", "deviations", "environment", "command", "created_at",
                     "derive_version", "kind", "provenance")
        if getattr(submitted, name) != getattr(stored, name)
    ]  # fmt: skip
    benchmark = submitted.benchmark.model_dump(exclude={"repo", "revision"})
    differing += ["benchmark"] if benchmark != stored.benchmark.model_dump(exclude={"repo", "revision"}) else []
    differing += (
        []
        if submitted.model.model_copy(update={"name": normalize_name(submitted.model.name)}) == stored.model
        else ["model"]
    )
    submitted_rows, stored_rows = (
        read_readings(folder, [n for n in ANSWER_TABLE_COLUMNS if n not in ("question_id", "sample")]).to_dict(
            "records"
        )
        for folder in (run, landed)
    )
    differing += [] if len(submitted_rows) == len(stored_rows) else ["number of answers"]
    for submitted_row, stored_row in zip(submitted_rows, stored_rows, strict=False):
        differing += [
            f"{submitted_row['question_id']}: {name}"
            for name in submitted_row
            if not _same(submitted_row[name], stored_row[name])
        ]
    return differing


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    are_floats = isinstance(a, float) and isinstance(b, float)
    return (are_floats and math.isnan(a) and math.isnan(b)) or a == b
