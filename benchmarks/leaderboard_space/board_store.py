"""Make a results store of the size that the board is built for, with invented data.

    PYTHONPATH=. python benchmarks/leaderboard_space/board_store.py STORE
        [--models 60] [--questions 26000] [--published 200]

Each model's answers are drawn independently of the other models' answers.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from eval_harness.records.limits import model_slug
from eval_harness.records.result import Benchmark, Method, Model, Result, Score, Source
from tests.leaderboard_space.stores import MADE_AT, add_run

KINDS = ("open", "proprietary", "medical")


def make_questions(number: int, rng: np.random.Generator) -> pd.DataFrame:
    """Invent questions in the shape of GMAI-MMBench.

    18 tasks, 18 departments, 4 granularities, 38 modalities, 717 keywords and 810 leaves; one
    question in ten shares its image with another.
    """
    leaves = [(f"Modality {int(rng.integers(0, 38))}", f"keyword {i % 717}") for i in range(810)]
    # A few leaves have most of the questions, as in the real benchmark.
    leaf = rng.zipf(1.3, number) % 810
    options = rng.integers(3, 6, number)
    answer = rng.integers(0, options)
    return pd.DataFrame(
        {
            "question_id": [str(i) for i in range(number)],
            "case_id": [str(i) for i in range(number)],
            "image_id": [str(i - (i % 10 == 9)) for i in range(number)],
            "question": [f"Invented question {i}?" for i in range(number)],
            "options": [[f"option {j}" for j in range(k)] for k in options],
            "answer": [[int(a)] for a in answer],
            "question_type": "single",
            "task": [f"Task {int(x)}" for x in rng.integers(0, 18, number)],
            "department": [f"Department {int(x)}" for x in rng.integers(0, 18, number)],
            "granularity": [f"Granularity {int(x)}" for x in rng.integers(0, 4, number)],
            "modality": [leaves[i][0] for i in leaf],
            "keyword": [leaves[i][1] for i in leaf],
            "categories": [[] for _ in range(number)],
        }
    )


def write_run(store: Path, questions: pd.DataFrame, number: int, rng: np.random.Generator) -> None:
    """Add a run of one invented model.

    The model knows a share of the answers, guesses the others, and gives no answer to 2 % of the
    questions.
    """
    skill = float(rng.uniform(0.02, 0.6))
    options = questions["options"].map(len).to_numpy()
    key = np.array([cell[0] for cell in questions["answer"]])
    choice = np.where(rng.random(len(questions)) < skill, key, rng.integers(0, options))
    lost = rng.random(len(questions)) < 0.02
    answers = pd.DataFrame(
        {
            "question_id": questions["question_id"],
            "sample": 0,
            "response": ["" if gone else "ABCDE"[c] for c, gone in zip(choice, lost, strict=True)],
            "choice": [[] if gone else [int(c)] for c, gone in zip(choice, lost, strict=True)],
            "status": np.where(lost, "irrelevant", "answered"),
            "rule": "letter",
        }
    )
    name = f"Invented Model {number} {int(rng.integers(2, 90))}B"
    add_run(store, "gmai-mmbench", questions, answers, name, KINDS[number % 3], origin="official")


def write_published(store: Path, number: int, rng: np.random.Generator) -> None:
    """Add one row of a published table, with a score per department."""

    def cell(n: int) -> dict[str, Score]:
        return {"accuracy": Score(value=round(float(rng.uniform(20, 60)), 2), n=n, n_cases=n, chance=25.7)}

    name = f"Printed Model {number}"
    result = Result(
        kind="printed",
        provenance="published",
        benchmark=Benchmark(name="gmai-mmbench", format="gmai-mmbench", split="validation", questions=4550),
        model=Model(name=name, kind=KINDS[number % 3]),
        method=Method(name="mc"),
        scores=cell(4550),
        breakdown={"department": {f"Department {i}": cell(250) for i in range(18)}},
        created_at=MADE_AT,
        source=Source(citation="An invented paper", table="Table 10"),
    )
    folder = store / "results" / "gmai-mmbench" / model_slug(name) / "run"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(result.to_json(), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--questions", type=int, default=26_000)
    parser.add_argument("--published", type=int, default=200)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    questions = make_questions(args.questions, rng)
    for number in range(args.models):
        write_run(args.store, questions, number, rng)
        print(f"\r{number + 1} of {args.models} models", end="", flush=True)
    for number in range(args.published):
        write_published(args.store, number, rng)
    print(f"\n{args.store}: {args.models} x {args.questions} answers, {args.published} published rows")


if __name__ == "__main__":
    main()
