"""Measure how often `medprobe compare` names the planted reason of a difference, and its points.

    PYTHONPATH=. python benchmarks/scoring/why_simulation.py --pairs 1000 --without 300 --two 300

Each pair of runs answers made-up questions of one benchmark, 80 to 240 of them. The second run has
the same answers as the first or, in half of the pairs, repeats it with 2 to 10 % of the answers
redrawn. Into one of the two, a fault of a random kind is planted that changes its headline score by
at least three points. Its true points are the change of the score of the run that it was planted
into. Pairs without a fault are two runs of one model, or of two models of different skill.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.derive.reading import judge_queries, read_due_answers
from eval_harness.records.result import Benchmark, Method, Model, Result, RunRecord, RunRequest, Score
from eval_harness.scores.grading import grade
from eval_harness.store.causes import explain
from eval_harness.store.comparison import Side

MIN_POINTS = 3.0
MAX_DRAWS = 30
"""Draws of a pair for the same kinds of fault, before others are drawn."""
FILLER_WORDS = [
    "amber",
    "basil",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jetty",
    "knoll",
    "lotus",
]
NAMED_LETTERS = "ABCDEFGH"
JUDGE = {"model": "openai:judge", "prompt": "extraction", "prompt_hash": "0"}
SIMULATED_FAMILIES = ("mediconfusion", "gmai-mmbench", "halt-medvqa", "probmed-vqa-rad")
STYLES = ("{letter}", "{letter}.", "{letter}. {text}", "The answer is {letter}.", "({letter})")


@dataclass(frozen=True)
class Answers:
    """What a run consists of before it is read: `picks` are option positions, None for text that no
    rule can read; `style` writes an answer; `rows` are answers whose text was replaced.
    """

    family: str
    questions: pd.DataFrame
    picks: list[int | None]
    style: str
    replaced: dict[int, tuple[str, str, str | None]]
    extraction: str = "ours"
    judged: bool = False
    missing: frozenset[int] = frozenset()
    row_step: int = 0
    wraps: bool = True


def make_questions(rng: random.Random, family: str) -> pd.DataFrame:
    """Draw 80 to 240 questions."""
    rows: list[dict[str, object]] = []
    is_paired = family in ("mediconfusion", "probmed-vqa-rad")
    for case in range(rng.randint(40, 120) * (1 if is_paired else 2)):
        size = 2 if is_paired else 5 if family == "halt-medvqa" else rng.randint(2, 5)
        options = ["yes", "no"] if family == "probmed-vqa-rad" else rng.sample(FILLER_WORDS, size)
        key = rng.randrange(size)
        for side in range(2 if is_paired else 1):
            rows.append(
                {
                    "question_id": f"{case}-{side}",
                    "case_id": str(case),
                    "image_id": f"image-{case}-{side}",
                    "question": f"Question {case}?",
                    "options": options,
                    "answer": [(key + side) % size],
                    "question_type": "yes_no" if family == "probmed-vqa-rad" else "single",
                    "adversarial": bool(side),
                    "pair_id": str(case),
                    "scenario": "none",
                    "task": f"task {case % 7}",
                    "categories": [],
                }
            )
    return pd.DataFrame(rows)


def make_answers(rng: random.Random, family: str, skill: float | None = None) -> Answers:
    """Draw the answers of a model: it knows some, prefers a letter, and rambles at others."""
    questions = make_questions(rng, family)
    skill = rng.uniform(0.3, 0.9) if skill is None else skill
    style = "{text}" if family == "probmed-vqa-rad" else rng.choice(STYLES)
    picks = [draw_pick(rng, row, skill) for row in questions.to_dict("records")]
    return Answers(family, questions, picks, style, {})


def draw_pick(rng: random.Random, question: dict[str, object], skill: float) -> int | None:
    """Draw the option that a model of this skill chooses."""
    size = len(question["options"])  # type: ignore[arg-type]
    if rng.random() < 0.04:
        return None
    return question["answer"][0] if rng.random() < skill else min(rng.randrange(size), rng.randrange(size))  # type: ignore[index]


def redrawn(rng: random.Random, answers: Answers, share: float, skill: float) -> Answers:
    """Redraw a share of the answers."""
    rows = answers.questions.to_dict("records")
    picks = [
        draw_pick(rng, row, skill) if rng.random() < share else pick
        for row, pick in zip(rows, answers.picks, strict=True)
    ]
    return replace(answers, picks=picks)


def to_side(answers: Answers, name: str) -> Side:
    """Read and score the answers."""
    rows = []
    for at, (question, pick) in enumerate(zip(answers.questions.to_dict("records"), answers.picks, strict=True)):
        if at in answers.missing:
            continue
        options = question["options"]
        in_range = pick is not None and 0 <= pick < len(options)
        text = "It is hard to say, there is a lot to see here." if pick is None else answers.style
        text = text.format(letter=NAMED_LETTERS[pick or 0], text=options[pick] if in_range else "", digit=pick)  # type: ignore[index]
        delivery, finish_reason = "answered", "stop"
        if at in answers.replaced:
            new_text, delivery, new_reason = answers.replaced[at]
            text, finish_reason = new_text.format(half=text[: len(text) // 2]), new_reason or finish_reason
        rows.append(
            {
                "question_id": question["question_id"],
                "sample": 0,
                "response": text,
                "delivery": delivery,
                "finish_reason": finish_reason,
            }
        )
    if answers.row_step:
        texts = [(row["response"], row["delivery"], row["finish_reason"]) for row in rows]
        moved = texts[-answers.row_step :] + texts[: -answers.row_step]
        if not answers.wraps:
            moved[0 if answers.row_step > 0 else -1] = ("", "answered", "stop")
        for row, text in zip(rows, moved, strict=True):
            row["response"], row["delivery"], row["finish_reason"] = text
    benchmark = Benchmark(name=answers.family, format=answers.family, split="test", questions=len(answers.questions))
    method = Method(name="mc", samples=1, extraction=answers.extraction, judge=JUDGE if answers.judged else None)
    request = RunRequest(
        benchmark=answers.family,
        data="",
        split="test",
        fingerprint="",
        model=name,
        method="mc",
        prompt=None,
        samples=1,
        generation={},
    )
    run = RunRecord(
        run_id="", request=request, benchmark=benchmark, model=Model(name=name), method=method, created_at=""
    )
    columns = ("question_id", "sample", "response", "scores", "delivery", "finish_reason", "reasoning")
    table = pd.DataFrame(rows).reindex(columns=list(columns)).astype(object)
    table = table.where(table.notna(), None)
    replies = None
    if answers.judged:
        key_of = dict(zip(answers.questions["question_id"], answers.questions["answer"], strict=True))
        queries = judge_queries(run, table, answers.questions)
        replies = pd.DataFrame(
            [(query.question_id, query.sample, NAMED_LETTERS[key_of[query.question_id][0]]) for query in queries],
            columns=["question_id", "sample", "reply"],
        )
    readings, _ = read_due_answers(run, table, answers.questions, replies)
    metric = HEADLINE_METRICS[answers.family]
    units = eval_spec(answers.family).units(grade(answers.family, answers.questions, readings))
    units = units[units["metric"] == metric]
    value = 100 * float(units["numerator"].sum() / units["denominator"].sum())
    score = Score(value=value, n=len(units), n_cases=len(units))
    result = Result(
        kind="measured",
        provenance="submitted",
        benchmark=benchmark,
        model=Model(name=name),
        method=method,
        scores={metric: score},
        created_at="",
    )
    return Side(name, result, readings, answers.questions, replies)


def value_of(side: Side) -> float:
    """The headline score of a side."""
    (score,) = side.result.scores.values()
    assert score.value is not None
    return score.value


Fault = Callable[[random.Random, Answers], Answers]


def fewer_questions(rng: random.Random, answers: Answers) -> Answers:
    cases = list(dict.fromkeys(answers.questions["case_id"]))
    n = rng.randint(len(cases) // 5, len(cases) * 4 // 5)
    # The first ones, a random part, or mostly those that the model cannot answer.
    keys = answers.questions["answer"].map(lambda key: key[0])
    right = {
        case for case, pick, key in zip(answers.questions["case_id"], answers.picks, keys, strict=True) if pick == key
    }
    by_difficulty = sorted(cases, key=lambda case: (case in right) + rng.random())
    kept = set(rng.choice([cases[:n], rng.sample(cases, n), by_difficulty[:n]]))
    rows = [at for at, case in enumerate(answers.questions["case_id"]) if case in kept]
    questions = answers.questions.iloc[rows].reset_index(drop=True)
    replaced = {new: answers.replaced[at] for new, at in enumerate(rows) if at in answers.replaced}
    missing = frozenset(new for new, at in enumerate(rows) if at in answers.missing)
    return replace(
        answers, questions=questions, picks=[answers.picks[at] for at in rows], replaced=replaced, missing=missing
    )


def other_key(rng: random.Random, answers: Answers) -> Answers:
    share = rng.uniform(0.04, 0.4)
    keys = [
        [(key[0] + 1) % len(options)] if rng.random() < share else key
        for key, options in zip(answers.questions["answer"], answers.questions["options"], strict=True)
    ]
    return replace(answers, questions=answers.questions.assign(answer=pd.Series(keys, dtype=object)))


def other_reader(rng: random.Random, answers: Answers) -> Answers:
    return replace(answers, extraction="official")


def with_judge(rng: random.Random, answers: Answers) -> Answers:
    return replace(answers, judged=True)


def lost(rng: random.Random, answers: Answers) -> Answers:
    n = len(answers.picks)
    rows = rng.sample(range(n), int(n * rng.uniform(0.05, 0.5)))
    way = rng.choice(("cut", "failed", "missing", "cut unmarked"))
    if way == "missing":
        return replace(answers, missing=answers.missing | frozenset(rows))
    lost_row = {
        "cut": ("It may be that", "answered", "length"),
        "failed": ("", "no response", None),
        "cut unmarked": ("{half}" if answers.style.startswith("The") else "", "answered", None),
    }[way]
    return replace(answers, replaced=answers.replaced | dict.fromkeys(rows, lost_row))


def refused(rng: random.Random, answers: Answers) -> Answers:
    n = len(answers.picks)
    rows = rng.sample(range(n), int(n * rng.uniform(0.05, 0.5)))
    text = ("I'm sorry, but I cannot help with that.", "answered", None)
    return replace(answers, replaced=answers.replaced | dict.fromkeys(rows, text))


def moved_letters(rng: random.Random, answers: Answers, step: int | None = None) -> Answers:
    step, wraps = step or rng.choice((-1, 1)), rng.random() < 0.5
    sizes = answers.questions["options"].map(len)
    picks = [
        None if pick is None else (pick + step) % size if wraps or pick + step < 0 else pick + step
        for pick, size in zip(answers.picks, sizes, strict=True)
    ]
    return replace(answers, picks=picks, style=rng.choice(("{letter}", "{letter}.", "({letter})")))


def from_zero(rng: random.Random, answers: Answers) -> Answers:
    return replace(answers, style="{digit}")


def moved_rows(rng: random.Random, answers: Answers) -> Answers:
    return replace(answers, row_step=rng.choice((-1, 1)), wraps=rng.random() < 0.5)


def other_order(rng: random.Random, answers: Answers) -> Answers:
    kind = rng.choice(("reversed", "alphabetical", "fixed"))
    fixed = {size: rng.sample(range(size), size) for size in range(2, 6)}
    picks: list[int | None] = []
    for pick, options in zip(answers.picks, answers.questions["options"], strict=True):
        order = list(range(len(options)))[::-1]
        if kind != "reversed":
            order = sorted(order, key=options.__getitem__) if kind == "alphabetical" else fixed[len(options)]
        picks.append(None if pick is None else order.index(pick))
    return replace(answers, picks=picks, style=rng.choice(("{letter}", "{letter}.", "({letter})")))


FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "questions": (fewer_questions, ("questions asked",)),
    "key": (other_key, ("key",)),
    "reader": (other_reader, ("reader",)),
    "judge": (with_judge, ("judge",)),
    "lost": (lost, ("answers cut off", "answers failed", "answers missing", "answers empty")),
    "refused": (refused, ("refused answers",)),
    "letters": (moved_letters, ("letters shifted by one",)),
    "from zero": (from_zero, ("options counted from 0", "letters shifted by one")),
    "rows": (moved_rows, ("rows shifted by one",)),
    "order": (other_order, ("options in another order", "letters shifted by one")),
}
"""Kind -> how to plant it, and beginnings of the factors that name it."""
IN_LETTERS = {"letters", "from zero", "order"}


def is_named(kind: str, factor: str) -> bool:
    return factor.startswith(FAULTS[kind][1])


@dataclass(frozen=True)
class Pair:
    a: Side
    b: Side
    kinds: tuple[str, ...]
    points: tuple[float, ...]
    is_noisy: bool


def planted_pair(rng: random.Random, n_faults: int) -> Pair:
    """Draw a pair with faults of at least MIN_POINTS each."""
    while True:
        # In the order of FAULTS: rows are shifted in the file of those questions that are asked.
        kinds = tuple(sorted(rng.sample(list(FAULTS), n_faults), key=list(FAULTS).index))
        if len(IN_LETTERS.intersection(kinds)) > 1:  # a letter is wrong in one way
            continue
        for _ in range(MAX_DRAWS):
            if (pair := _try_pair(rng, kinds)) is not None:
                return pair


def _try_pair(rng: random.Random, kinds: tuple[str, ...]) -> Pair | None:
    letters = IN_LETTERS.intersection(kinds)
    family = rng.choice([name for name in SIMULATED_FAMILIES if name != "probmed-vqa-rad" or not letters])
    skill = rng.uniform(0.3, 0.9)
    run_a = make_answers(rng, family, skill)
    if letters and "reader" not in kinds:
        run_a = replace(run_a, style="{letter}")
    if "judge" in kinds:
        run_a = replace(run_a, picks=[None if rng.random() < 0.25 else pick for pick in run_a.picks])
    is_noisy = rng.random() < 0.5
    run_b = redrawn(rng, run_a, rng.uniform(0.02, 0.1), skill) if is_noisy else run_a
    in_b = [rng.random() < 0.5 for _ in kinds]
    if {"rows", *IN_LETTERS} & set(kinds):
        in_b = [in_b[0]] * len(kinds)
    runs, points = [run_a, run_b], []
    sides = [to_side(run, "run") for run in runs]
    for kind, at in zip(kinds, in_b, strict=True):
        score_before = value_of(sides[at])
        runs[at] = FAULTS[kind][0](rng, runs[at])
        sides[at] = to_side(runs[at], "run")
        points.append((1 if at else -1) * (score_before - value_of(sides[at])))
        if abs(points[-1]) < MIN_POINTS:
            return None
    return Pair(sides[0], sides[1], kinds, tuple(points), is_noisy)


def faultless_pair(rng: random.Random) -> Pair:
    """Draw two runs of one model, or of two models."""
    run_a = make_answers(rng, rng.choice(SIMULATED_FAMILIES), rng.uniform(0.1, 0.9))
    run_b = redrawn(rng, run_a, rng.choice((0.02, 0.1, 0.5, 1.0)), rng.uniform(0.1, 0.9))
    runs = [run_a, run_b]
    for at in (0, 1):  # a few refusals, as models differ in
        rows = rng.sample(range(len(run_a.picks)), int(len(run_a.picks) * rng.uniform(0, 0.03)))
        runs[at] = replace(runs[at], replaced=dict.fromkeys(rows, ("I cannot answer that.", "answered", None)))
    return Pair(to_side(runs[0], "first"), to_side(runs[1], "second"), (), (), True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--without", type=int, default=300)
    parser.add_argument("--two", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    rng, start = random.Random(options.seed), time.process_time()
    n_drawn, n_named_first, n_close, misses = Counter[str](), Counter[str](), Counter[str](), []
    errors: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.pairs):
        pair = planted_pair(rng, 1)
        (kind,), (points,) = pair.kinds, pair.points
        explained = explain(pair.a, pair.b)
        cause = next(iter(explained.causes), None)
        ranked = cause is not None and abs(cause.points) >= abs(explained.different_points)
        is_named_first = cause is not None and ranked and is_named(kind, cause.factor)
        n_drawn[kind] += 1
        n_named_first[kind] += is_named_first
        matching = [
            matching_cause.points for matching_cause in explained.causes if is_named(kind, matching_cause.factor)
        ]
        error = abs(sum(matching) - points) if matching else abs(points)
        errors[pair.is_noisy].append(error)
        n_close[kind] += error <= 0.1
        if options.verbose and (not is_named_first or (error > 0.1 and not pair.is_noisy)):
            misses.append((kind, pair.is_noisy, round(points, 2), explained))
    print(f"{options.pairs} pairs with one fault, {time.process_time() - start:.0f} s of the processor")
    print(f"named first: {100 * sum(n_named_first.values()) / max(options.pairs, 1):.1f} %")
    for is_noisy, label in ((False, "same answers"), (True, "2 to 10 % drawn anew")):
        part = sorted(errors[is_noisy])
        if part:
            within = 100 * sum(error <= 0.1 for error in part) / len(part)
            print(f"points, {label}: {within:.1f} % within .1, largest error {part[-1]:.2f}, mean {sum(part) / len(part):.3f}")  # fmt: skip
    for kind in FAULTS:
        print(
            f"  {kind:<10} {n_drawn[kind]:>4} drawn, {n_named_first[kind]:>4} named first, {n_close[kind]:>4} within .1"
        )
    falsely_named = Counter(
        cause.factor
        for _ in range(options.without)
        for pair in (faultless_pair(rng),)
        for cause in explain(pair.a, pair.b).causes[:1]
    )
    print(f"{options.without} pairs without a fault: a cause named in {falsely_named.total()} {dict(falsely_named)}")
    n_both_named = sums = 0
    by_kind = Counter[str]()
    for _ in range(options.two):
        pair = planted_pair(rng, 2)
        explained = explain(pair.a, pair.b)
        factors = [cause.factor for cause in explained.causes]
        unnamed = [kind for kind in pair.kinds if not any(is_named(kind, factor) for factor in factors)]
        n_both_named += not unnamed
        by_kind.update(unnamed)
        total = sum(cause.points for cause in explained.causes) + explained.different_points
        sums += abs(total - (explained.a - explained.b)) < 1e-9
        if options.verbose and unnamed:
            misses.append((pair.kinds, pair.is_noisy, pair.points, explained))
    print(f"{options.two} pairs with two faults: both named in {100 * n_both_named / max(options.two, 1):.1f} %")
    print(f"  points add up in {sums}; not named: {dict(by_kind)}")
    print(f"{time.process_time() - start:.0f} s of the processor in all")
    for miss in misses[:40]:
        print(*miss)


if __name__ == "__main__":
    main()
