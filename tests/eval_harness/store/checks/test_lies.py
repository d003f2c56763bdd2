"""Every kind of false submission is flagged, refused or ineffective; honest runs are not flagged.

Each kind is a generator over runs, datasets, names and transformations.

See also: runs of baselines (`test_honest_runs.py`), what a pull request may add
(`test_verification.py`).
"""

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.run_files import ANSWERS_SCHEMA, JUDGE_SCHEMA, SubmittedFiles, answer_frame, encode_table
from eval_harness.reader.judge import judge_prompt_record
from eval_harness.records.baseline_rules import make_baseline
from eval_harness.records.limits import normalize_name
from eval_harness.records.request import rotate_options, rotation
from eval_harness.records.result import DELIVERIES, Method, Model, RunRecord, RunRequest
from eval_harness.store import checks, examine as examining
from eval_harness.store.adding import add_to_folder, withdraw
from eval_harness.store.checks import BASELINE_NAMES
from eval_harness.store.contents import Acceptance, Submission, utc_now
from eval_harness.store.dataset_lookup import Dataset, load_split
from eval_harness.store.examine import examine
from eval_harness.store.similarity import duplicate_flags
from tests.eval_harness.store.honest import MODEL_NAMES
from tests.sampling import few

REPO, COMMIT, RELEASED = "ORG/phantoms", "1" * 40, "2" * 40
PUBLISHED_KINDS = {
    "Random guessing": "baseline",
    "GPT-4o": "proprietary",
    "LLaVA-Med": "medical",
    "Human expert": "baseline",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """A submission to try: a run and rows of answers, by an account."""

    run: RunRecord
    rows: list[Row] = field(repr=False)
    account: str = "eve"
    replies: list[Row] | None = field(default=None, repr=False)
    """A judge model's replies."""


@dataclass(frozen=True)
class World:
    """A dataset that the store's owner vouches for, and a store with Ann's result in it."""

    dataset: Dataset = field(repr=False)
    store: Path
    victim: Attempt = field(repr=False)
    withdrawn: Attempt = field(repr=False)

    def run(self, samples: int = 1, permute: bool = False, method: str = "mc", name: str = "Model E") -> RunRecord:
        benchmark = self.dataset.benchmark(self.dataset.questions, None)
        request = RunRequest(
            benchmark=benchmark.name, data=REPO, split=benchmark.split, fingerprint=benchmark.fingerprint or "", model="org/m",
            method=method, prompt=None, samples=samples, generation={}, permute=permute,
        )  # fmt: skip
        return RunRecord(
            run_id="x", request=request, benchmark=benchmark, model=Model(name=name, kind="open"), created_at="2026-11-01T00:00:00+00:00",
            method=Method(name=method, samples=samples, extraction="ours"),
        )  # fmt: skip

    def answers(
        self, draw: random.Random, run: RunRecord, skill: float | Callable[[int, int], float] = 0.6
    ) -> list[Row]:
        """Simulate the answers of a model.

        It is right in a share of the questions, or by (number, sample) -> share, with its own
        wording. Models find the same questions hard and prefer the same wrong options; someone who
        has the key does not.
        """
        style = draw.choice(STYLES)
        rows = []
        for number, row in enumerate(self.dataset.questions.itertuples(index=False)):
            for sample in range(run.request.samples):
                wrong_choices = [[at] for at in range(len(row.options)) if [at] != list(row.answer)]
                if callable(skill):
                    right = draw.random() < skill(number, sample)
                else:
                    question_random = random.Random(row.question_id)
                    right = question_random.gauss(0, 1) + draw.gauss(0, 0.9) < NormalDist().inv_cdf(skill) * math.hypot(
                        1, 0.9
                    )
                    wrong_choices += [question_random.choice(wrong_choices)] * len(wrong_choices)
                choice = list(row.answer) if right else draw.choice(wrong_choices)
                rows.append(self.said(run, row, sample, choice, style))
        return rows

    @staticmethod
    def said(run: RunRecord, question: Any, sample: int, choice: list[int], style: str) -> Row:
        count = len(question.options)
        turned = rotation(sample, count) if run.request.permute else 0
        order = rotate_options(list(question.options), turned)
        at = sorted((position - turned) % count for position in choice)
        words = ", ".join(
            order[position] if question.question_type == "yes_no" else "ABCDEFGH"[position] for position in at
        )
        row: Row = {
            "question_id": question.question_id,
            "sample": sample,
            "response": style.format(words),
            "delivery": "answered",
        }
        if run.method.name != "mc":
            row |= {
                "response": "",
                "scores": [0.0 if position in at else -1.0 - position for position in range(count)],
            }
        return row

    def judged(self, attempt: Attempt) -> Submission:
        """Return the store's verdict on an attempt. Raises BadInput."""
        replies = None if attempt.replies is None else encode_table(pd.DataFrame(attempt.replies), JUDGE_SCHEMA)
        sent = SubmittedFiles(
            attempt.run.to_json().encode(), encode_table(answer_frame(attempt.rows), ANSWERS_SCHEMA), replies
        )
        submission = examine(sent, lambda claimed: self.dataset)
        submission.flags.extend(duplicate_flags(self.store, submission, attempt.account, published=PUBLISHED_KINDS))
        return submission

    def add(self, attempt: Attempt) -> str:
        """Add an honest result, which must not be flagged; return its folder in the store."""
        submission = self.judged(attempt)
        assert submission.problems == [] and submission.flags == [], submission.flags
        add_to_folder(
            self.store,
            submission,
            Acceptance(account=attempt.account, accepted_at=utc_now(), verified_by=attempt.account),
        )
        return submission.folder

    def caught(self, attempt: Attempt) -> list[str]:
        """Return every reason why an attempt is not added unseen."""
        try:
            submission = self.judged(attempt)
        except BadInput as error:
            return [str(error)]
        return [*submission.problems, *submission.flags]


STYLES = ("{}", "{}.", "The answer is {}.", "**{}**", "({})")
LIED_BENCHMARKS = ("probmed", "halt-medvqa", "gmai-mmbench")


@pytest.fixture(scope="module")
def worlds(phantoms, tmp_path_factory):
    return {family: world_of(phantoms / family, tmp_path_factory.mktemp("store")) for family in LIED_BENCHMARKS}


def world_of(data: Path, store: Path, min_questions: int = 150) -> World:
    """Build a world from phantoms, repeated to a minimum number of questions.

    Its store has Ann's result, those of four other models, and one that Eve withdrew.
    """
    family = data.name
    repository = open_repository(data)
    dataset = load_split(repository, repository.splits[0], is_vouched=True)
    parts = [
        dataset.questions.assign(
            **{name: dataset.questions[name].astype(str) + f"x{part}" for name in ("question_id", "case_id")}
        )
        for part in range(-(-min_questions // len(dataset.questions)))
    ]
    dataset = replace(
        dataset,
        questions=pd.concat(parts, ignore_index=True),
        repo=REPO,
        revision=COMMIT,
        partial=None,
    )
    world = World(dataset, store, None, None)  # type: ignore[arg-type]
    run = world.run(name="Ann's model")
    victim = Attempt(run, world.answers(random.Random(family), run), "ann")
    run = world.run(name="Eve's first")
    withdrawn = Attempt(run, world.answers(random.Random(f"{family} withdrawn"), run, 0.65))
    world = replace(world, victim=victim, withdrawn=withdrawn)
    world.add(victim)
    for number, share in enumerate((0.45, 0.55, 0.7, 0.8)):
        run = world.run(name=f"Peer {number}")
        world.add(
            Attempt(
                run,
                world.answers(random.Random(f"{family} {number}"), run, share),
                f"account {number}",
            )
        )
    withdraw(store, world.add(withdrawn), "a wrong prompt", "eve")
    return world


@pytest.fixture(autouse=True)
def released(monkeypatch):
    monkeypatch.setattr(examining, "is_released", lambda repo, revision: (repo, revision) == (REPO, RELEASED))


def changed(run: RunRecord, **parts: dict[str, Any]) -> RunRecord:
    document = json.loads(run.to_json())
    for name, fields in parts.items():
        document[name].update(fields)
    return RunRecord.model_validate(document)


def key_in_most_samples(world: World, draw: random.Random) -> Iterator[Attempt]:
    """The key in all samples, or in all but the first of twenty."""
    samples, permute, method = (
        draw.choice([1, 2, 5, 20]),
        draw.random() < 0.5,
        draw.choice(["mc", "mc", "gd"]),
    )
    samples = 1 if method == "gd" else samples
    run = world.run(samples, permute and method == "mc", method)
    wrong_ones = 1 if samples == 20 else 0
    yield Attempt(run, world.answers(draw, run, lambda number, sample: sample >= wrong_ones))


def withdrawn_again(world: World, draw: random.Random) -> Iterator[Attempt]:
    """What Eve withdrew, with a space added or a few answers changed, under the same or another
    name.
    """
    run, rows = (
        world.run(name=draw.choice(["Eve's first", "Eve's second"])),
        [dict(row) for row in world.withdrawn.rows],
    )
    rows[draw.randrange(len(rows))]["response"] += " "
    changes = world.answers(draw, run)
    for at in draw.sample(range(len(rows)), draw.choice([0, 1, len(rows) // 50])):
        rows[at]["response"] = changes[at]["response"]
    yield Attempt(run, rows)


def forged_arms(world: World, draw: random.Random) -> Iterator[Attempt]:
    """A run of Eve's own without the right images that avoids the key, so that the whole score
    seems to need them.
    """
    if world.dataset.family == "halt-medvqa":
        return  # its key is "I do not know", which honest models avoid as well
    image = draw.choice(["withheld", "blank", "swapped"])
    run = changed(world.run(), request={"image": image}, method={"image": image})
    yield Attempt(run, world.answers(draw, run, lambda number, sample: 0.02))


def names_with_claims(world: World, draw: random.Random) -> Iterator[Attempt]:
    """A name that makes claims, or consists of symbols that only look like letters."""
    name = draw.choice(
        ["{} (official)", "{}, verified", "{} \u2714", "\u2705 {}", "{} - www.example.org", "{} https://x.example/y", "\u24bc{}",
         "\U0001f150{}", "{}\u3164", "{}\u0430", "\u03b1{}", "{}\u200b"]
    )  # fmt: skip
    run = world.run(name=name.format(draw.choice(["GPT-4o", "Model E", "MedVLM"])))
    yield Attempt(run, world.answers(draw, run))


def wrong_answers_taken_out(world: World, draw: random.Random) -> Iterator[Attempt]:
    """Wrong answers are turned into refusals or failures, or left out."""
    run = world.run(draw.randint(1, 4))
    key = {row.question_id: row for row in world.dataset.questions.itertuples(index=False)}
    removal, style, rows = draw.choice(["refusal", "failure", "nothing"]), draw.choice(STYLES), []
    for row in world.answers(draw, run, lambda number, sample: 0.0):
        if draw.random() < 0.7:
            question = key[row["question_id"]]
            rows.append(world.said(run, question, row["sample"], list(question.answer), style))
        elif removal == "refusal":
            rows.append(row | {"response": "I'm sorry, I cannot help with medical images."})
        elif removal == "failure":
            rows.append(row | {"response": "", "delivery": "no response"})
    yield Attempt(run, rows)


def copies(world: World, draw: random.Random) -> Iterator[Attempt]:
    """Ann's answers under another name: reworded, repeated, mixed, in part, by another method or
    reader.
    """
    victim, key = (
        world.victim,
        {row.question_id: row for row in world.dataset.questions.itertuples(index=False)},
    )
    method = draw.choice(["mc", "mc", "mc", "gd" if max(map(len, world.dataset.questions["answer"])) == 1 else "mc"])
    samples, permute = (1, False) if method == "gd" else (draw.randint(1, 6), draw.random() < 0.3)
    run = world.run(samples, permute, method)
    # The authors' reader of ProbMed reads one wording alone: a copy in another one scores nothing.
    may_be_official = method == "mc" and not permute and world.dataset.family != "probmed"
    run = changed(run, method={"extraction": draw.choice(["ours", "official"]) if may_be_official else "ours"})
    reads = world.judged(victim).readings().set_index("question_id")["choice"]
    copied = set(draw.sample(range(samples), draw.randint(1, samples)))
    kept_as_read = run.method.extraction == "official"  # this reader reads only one wording
    change, style = (
        "none" if kept_as_read else draw.choice(["none", "case", "blanks", "style"]),
        draw.choice(STYLES),
    )
    few = set(draw.sample(sorted(key), draw.randint(0, len(key) // 15)))
    wording = {row["question_id"]: row["response"] for row in victim.rows}
    rows = []
    for row in world.answers(draw, run, draw.choice([0.2, 0.6])):
        name = row["question_id"]
        if row["sample"] in copied and name not in few:
            row = world.said(run, key[name], row["sample"], list(reads[name]), style)
            if change != "style" and not permute and method == "mc":
                text = wording[name]
                row["response"] = {"none": text, "case": text.upper(), "blanks": f" {text} \n"}[change]
        rows.append(row)
    if draw.random() < 0.4:  # only some of the questions, since a run may be incomplete
        copied_questions = set(draw.sample(sorted(key), math.ceil(0.6 * len(key))))
        rows = [row for row in rows if row["question_id"] in copied_questions]
    yield Attempt(run, draw.sample(rows, len(rows)))


def read_by_a_judge(world: World, draw: random.Random) -> Iterator[Attempt]:
    """Empty answers with a judge's replies that contain the key or Ann's choices, or a changed
    judge prompt.
    """
    judge, run = judge_prompt_record("mc"), world.run(name="Model E")
    lie = draw.choice(["the key", "Ann's choices", "another prompt"])
    if lie == "another prompt":
        judge |= {"prompt_hash": "0" * 16}
    run = changed(run, method={"judge": {"model": "GPT-4o"} | judge})
    reads = world.judged(world.victim).readings().set_index("question_id")["choice"]
    wording = draw.choice(["What a lovely picture, thank you for sharing it.", "What a lovely picture, {}!"])
    few = set(draw.sample(range(len(world.dataset.questions)), len(world.dataset.questions) // 100))
    rows, replies = [], []
    for number, question in enumerate(world.dataset.questions.itertuples(index=False)):
        choice = list(reads[question.question_id] if lie == "Ann's choices" else question.answer)
        choice = [0] if number in few else choice
        about = {"question_id": question.question_id, "sample": 0}
        rows.append(about | {"response": wording.format(number), "delivery": "answered"})
        replies.append(about | {"reply": ", ".join("ABCDEFGH"[at] for at in choice)})
    yield Attempt(run, rows, replies=replies)


def misstated_responder(world: World, draw: random.Random) -> Iterator[Attempt]:
    """The responder is misstated: a model that claims to be a baseline, or a baseline in
    disguise.
    """
    kind, responder = (
        draw.choice(["open", "baseline", None]),
        draw.choice(["model", "guessing", "oracle"]),
    )
    requested = draw.choice(
        [
            "org/m",
            "baseline:chance",
            "baseline:oracle",
            "baseline:always-A",
            "another harness",
            "baseline:chanc",
        ]
    )
    command = draw.choice([None, "medprobe eval x --model baseline:chance", "medprobe eval x --model=baseline:oracle"])
    name = draw.choice(["Model E", "Random guessing"])
    run = changed(
        world.run(),
        model={"kind": kind, "responder": responder, "name": name},
        request={"model": requested},
    )
    run = run.model_copy(update={"command": command})
    is_model = kind != "baseline" and responder == "model" and name == "Model E"
    if not is_model or requested.startswith("baseline:") or command:
        yield Attempt(run, world.answers(draw, run))


def a_baseline(world: World, rule: str, name: str, method: str = "mc", judge: dict[str, Any] | None = None) -> Attempt:
    """Return the answers that a medprobe baseline gives, as `eval` writes them."""
    responder = "oracle" if rule == "oracle" else "guessing"
    run = changed(world.run(method=method, name=name), model={"kind": "baseline", "responder": responder})
    run = changed(run, request={"model": f"baseline:{rule}"}, method={"judge": judge})
    answers = map(make_baseline(rule)[1], checks._baseline_requests(run, world.dataset.questions))
    rows = [
        {
            "question_id": a.question_id,
            "sample": a.sample,
            "response": a.text,
            "delivery": DELIVERIES[a.status],
        }
        for a in answers
    ]
    return Attempt(run, rows)


def dressed_baseline(world: World, draw: random.Random) -> Iterator[Attempt]:
    """A baseline's answers in disguise: another name, a judge, option scores, or claimed to be a
    model's.
    """
    rule = draw.choice(["chance", "oracle", "always-A", "always-B"])
    baseline_name = make_baseline(rule)[0]
    disguise = draw.choice(["a model's name", "another's name", "judge", "scores", "model"])
    if disguise == "a model's name":
        yield a_baseline(
            world,
            rule,
            draw.choice([name for name, kind in PUBLISHED_KINDS.items() if kind != "baseline"]),
        )
    elif disguise == "another's name":
        yield a_baseline(world, rule, draw.choice([name for name in BASELINE_NAMES if name != baseline_name]))
    elif disguise == "judge":
        judge = {"model": "GPT-4o", "prompt": "extract-option", "prompt_hash": "0" * 16}
        yield a_baseline(world, rule, baseline_name, draw.choice(["mc", "ff"]), judge)
    elif disguise == "scores":
        attempt = a_baseline(world, rule, baseline_name, draw.choice(["mc", "gd"]))
        counts = dict(
            zip(
                world.dataset.questions["question_id"],
                world.dataset.questions["options"].map(len),
                strict=True,
            )
        )
        yield replace(
            attempt,
            rows=[row | {"scores": [float(n) for n in range(counts[row["question_id"]])]} for row in attempt.rows],
        )
    else:
        run = world.run(
            name=draw.choice(
                [
                    baseline_name,
                    baseline_name.upper(),
                    baseline_name.replace("a", "\u0430").replace("O", "0"),
                ]
            )
        )
        yield Attempt(run, world.answers(draw, run))


LOOKS = dict(
    zip(
        "aeopcxPTOMHBi",
        "\u0430\u0435\u043e\u0440\u0441\u0445\u0420\u0422\u039f\u041c\u041d\u0412\u0456",
        strict=True,
    )
)
"""Latin letters and others that look like them."""


def another_name(draw: random.Random, name: str) -> str:
    """Return a name that looks like another."""
    change = draw.choice(["letters", "case", "signs", "invisible", "one for l"])
    if change == "letters":
        return "".join(LOOKS.get(letter, letter) for letter in name)
    if change == "invisible":
        at = draw.randint(1, len(name) - 1)
        return name[:at] + draw.choice(["\u200d", "\ufe0f", "\u3164"]) + name[at:]
    if change == "one for l" and any(letter in name for letter in "lo"):
        return name.replace("l", "1").replace("o", "0")
    return name.replace(" ", "-") + "." if change == "signs" else name.swapcase()


def lookalike_names(world: World, draw: random.Random) -> Iterator[Attempt]:
    """A name that could be mistaken for that of another result, or of a published one."""
    name = draw.choice(["Ann's model", *PUBLISHED_KINDS])
    lookalike = another_name(draw, name)
    plain = [spelling.casefold().translate({ord(c): None for c in " -.`'"}) for spelling in (name, lookalike)]
    if plain[0] == plain[1] and PUBLISHED_KINDS.get(name) != "baseline":
        # another spelling of the same name is allowed: the model's own result is listed beside the
        # paper's
        return
    run = world.run(name=lookalike)
    yield Attempt(run, world.answers(draw, run))


def other_questions(world: World, draw: random.Random) -> Iterator[Attempt]:
    """Another repository, no commit or an unreleased one; parts of cases."""
    run = world.run()
    part = world.dataset.questions
    lie = draw.choice(["fork", "fork without a commit", "no commit", "a pull request's commit", "half cases"])
    if lie.startswith("fork"):
        benchmark = {
            "repo": draw.choice(["eve/phantoms", "ORG/phantom", "org/phantoms2"]),
            "revision": None if "out" in lie else "3" * 40,
        }
    elif lie in ("no commit", "a pull request's commit"):
        benchmark = {"repo": REPO, "revision": None if lie == "no commit" else "4" * 40}
    else:
        part = part.groupby("case_id").head(1)
        if len(part) == len(world.dataset.questions):
            return
        benchmark = world.dataset.benchmark(part.reset_index(drop=True), "only some").model_dump(by_alias=True)
    run = changed(
        run,
        benchmark=benchmark,
        request={"fingerprint": benchmark.get("fingerprint", run.request.fingerprint)},
    )
    part_ids = set(part["question_id"])
    yield Attempt(run, [row for row in world.answers(draw, run) if row["question_id"] in part_ids])


LIE_GENERATORS = (
    key_in_most_samples,
    withdrawn_again,
    forged_arms,
    names_with_claims,
    wrong_answers_taken_out,
    copies,
    read_by_a_judge,
    misstated_responder,
    dressed_baseline,
    lookalike_names,
    other_questions,
)


@pytest.mark.parametrize("kind", few(LIE_GENERATORS, 3), ids=lambda kind: kind.__name__)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32), family=st.sampled_from(LIED_BENCHMARKS))
def test_every_lie_is_flagged_or_refused(worlds, kind, seed, family):
    for attempt in kind(worlds[family], random.Random(f"{kind.__name__} {seed}")):
        assert worlds[family].caught(attempt), attempt.run


def honest(world: World, draw: random.Random) -> Iterator[Attempt]:
    """An honest run: any samples, order, method, reader, name, skill, and leading questions."""
    method = draw.choice(["mc", "mc", "gd"])
    samples, permute = (1, False) if method == "gd" else (draw.choice([1, 1, 2, 3, 5, 20]), draw.random() < 0.5)
    name = draw.choice(
        [
            *(normalize_name(name) for name in MODEL_NAMES),
            "Ann's other model",
            "gpt-4o",
            "Llama 4",
            "\u041c\u043e\u0434\u0435\u043b\u044c",
        ]
    )
    run = changed(
        world.run(samples, permute, method, name=name),
        benchmark={"revision": draw.choice([COMMIT, RELEASED])},
    )
    run = changed(
        run,
        method={"extraction": draw.choice(["ours", "official"]) if method == "mc" and not permute else "ours"},
    )
    rows = world.answers(draw, run, draw.choice([0.25, 0.6, 0.75]))
    share = draw.choice([0.0, 0.0, 0.2]) if method == "mc" else 0.0
    rows = [row | ({"response": "I cannot tell."} if draw.random() < share else {}) for row in rows]
    if draw.random() < 0.3:
        questions, count = world.dataset.questions, draw.randint(60, len(world.dataset.questions))
        part = questions[questions["case_id"].isin(questions["case_id"].iloc[:count])].reset_index(drop=True)
        benchmark = world.dataset.benchmark(part, f"only the first {count} questions").model_dump(by_alias=True)
        run = changed(run, benchmark=benchmark, request={"fingerprint": benchmark["fingerprint"]})
        rows = [row for row in rows if row["question_id"] in set(part["question_id"])]
    yield Attempt(run, rows)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32), family=st.sampled_from(LIED_BENCHMARKS))
def test_honest_runs_are_not_flagged(worlds, seed, family):
    (attempt,) = honest(worlds[family], random.Random(seed))
    assert worlds[family].caught(attempt) == [], attempt.run


def test_request_and_dataset_override_what_a_run_states(worlds):
    """Displayed fields that answers cannot confirm: examples, settings, measurements,
    validation.
    """
    world, settings_ = worlds["probmed"], {"temperature": 0.5, "seed": 3}
    run = changed(
        world.run(2),
        request={"generation": settings_, "shots": 2},
        method={"generation": settings_, "shots": 2},
    )
    rows = world.answers(random.Random(1), run)
    honest_result = world.judged(Attempt(run, rows)).result
    lies = {
        "method": {
            "shots": 4,
            "generation": settings_ | {"permute": True, "temperature": 0.0, "variant": "by experts"},
        },
        "environment": {"permuted": {"questions": 100, "same_option": 100.0, "same_letter": 0.0}},
        "benchmark": {"validated": True, "facets": "0" * 64},
    }
    lying_result = world.judged(Attempt(changed(run, **lies), rows)).result
    unchanged_fields = ("benchmark", "method", "environment", "scores", "breakdown", "statuses")
    assert [name for name in unchanged_fields if getattr(lying_result, name) != getattr(honest_result, name)] == []


@pytest.mark.exhaustive
def test_baselines_and_own_arms_are_not_flagged(worlds):
    """A perfect oracle is the oracle; a model that ignores images gives the same answers without
    them.
    """
    for world in worlds.values():
        for rule in ("chance", "oracle", "always-B"):
            assert world.caught(a_baseline(world, rule, make_baseline(rule)[0])) == []
        arm = changed(world.victim.run, request={"image": "blank"}, method={"image": "blank"})
        assert world.caught(replace(world.victim, run=arm)) == []
        assert world.caught(replace(world.victim, run=arm, account="eve"))


def test_readings_and_scores_cannot_be_sent(worlds):
    """There is no column and no field for derived values."""
    world = worlds["probmed"]
    sent = SubmittedFiles(
        world.victim.run.to_json().encode(), encode_table(answer_frame(world.victim.rows), ANSWERS_SCHEMA)
    )
    table = pq.read_table(pa.BufferReader(sent.answers))
    pq.write_table(
        table.append_column("choice", pa.array(["answered"] * len(table))),
        sink := pa.BufferOutputStream(),
    )
    with pytest.raises(BadInput, match="has the columns"):
        examine(sent._replace(answers=sink.getvalue().to_pybytes()), lambda benchmark: world.dataset)
    with pytest.raises(BadInput, match=r"run\.json"):
        document = json.loads(sent.run) | {"scores": {}}
        examine(sent._replace(run=json.dumps(document).encode()), lambda benchmark: world.dataset)
