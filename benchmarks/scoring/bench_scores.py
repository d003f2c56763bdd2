"""Time reading and scoring answers at ProbMed's size, and comparing many models.

    python benchmarks/scoring/bench_scores.py

Times are CPU seconds of one core (BLAS threads are limited before numpy is imported), so that other
load on the machine hardly counts; the import is measured in wall time. Prints one line per figure:
the median of several rounds and the worst round.
"""

# ruff: noqa: E402
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import statistics as plain
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from eval_harness.derive.metrics import compute_scores, compute_units
from eval_harness.derive.reading import read_responses
from eval_harness.scores.comparisons import OutcomeMatrix, compare_pairwise, compute_rank_ranges, pack_outcomes


def main() -> None:
    """Print all figures."""
    questions, answers = simulate_probmed()
    print_time(
        "ProbMed's size: read 57,132 responses",
        lambda: read_responses(answers, questions, "probmed"),
        5,
        1.0,
        "s",
    )
    readings = read_responses(answers, questions, "probmed")
    print_time(
        "ProbMed's size: units of 57,132 answers",
        lambda: compute_units("probmed", questions, readings),
        5,
        1.0,
        "s",
    )
    print_time(
        "ProbMed's size: every score and breakdown",
        lambda: compute_scores("probmed", questions, readings),
        5,
        1.0,
        "s",
    )
    for label, cluster in (
        ("one image each", np.arange(26_000)),
        ("two questions an image", np.repeat(np.arange(13_000), 2)),
    ):
        packed = pack_outcomes(simulate_models(60, cluster), "accuracy")
        # Warm-up
        rank_models(packed)
        name = f"all 1,770 paired tests of 60 models x 26,000 questions, Holm and ranks ({label})"
        print_time(name, lambda packed=packed: rank_models(packed), 15, 1e-3, "ms")  # type: ignore[misc]
    code = [sys.executable, "-c", "import eval_harness.scores.intervals"]
    print_time(
        "import eval_harness.scores.intervals, a new process",
        lambda: subprocess.run(code, check=True),
        5,
        1.0,
        "s",
        time.perf_counter,
    )


def rank_models(packed: OutcomeMatrix) -> None:
    """Rank as the board does: test every pair, correct by Holm, compute ranks."""
    pairs = compare_pairwise(packed)
    compute_rank_ranges(pairs.value, pairs.p)


def print_time(
    name: str,
    work: Callable[[], object],
    rounds: int,
    unit: float,
    word: str,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Run `work` several times and print the median and the worst time.

    Args:
        name: Title of the figure.
        work: What is timed.
        rounds: Number of runs.
        unit: Seconds in one unit of the printed times.
        word: Name of that unit.
        clock: Clock to read, in seconds.
    """
    times = []
    for _ in range(rounds):
        start = clock()
        work()
        times.append((clock() - start) / unit)
    print(f"{name}: median {plain.median(times):.2f} {word}, worst {max(times):.2f} {word}")


def simulate_probmed() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw questions in ProbMed's shape with random answers.

    There are 57,132 yes/no questions with every aspect, on 6,303 images of 12 types.
    """
    rng = np.random.default_rng(0)
    rows = []
    image_types = [
        f"{organ}_{modality}" for organ in ("chest", "brain", "spine", "abdomen") for modality in ("xray", "ct", "mri")
    ]
    for image in range(6303):
        aspects = (
            ["modality"] * 2
            + ["organ"] * 2
            + (["abnormality"] if image % 3 == 0 else [])
            + ["condition"] * 2
            + ["position"] * 2
        )
        rows.extend((image, aspect, position, image_types[image % 12]) for position, aspect in enumerate(aspects))
    rows.extend(
        (image % 6303, "condition", 100 + image // 6303, image_types[image % 6303 % 12])
        for image in range(57_132 - len(rows))
    )
    questions = pd.DataFrame(rows, columns=["case_id", "aspect", "position", "image_type"])
    questions["case_id"] = questions["case_id"].astype(str)
    questions["question_id"] = questions["case_id"] + "-" + questions["position"].astype(str)
    questions["adversarial"] = questions["position"] % 2 == 1
    questions["image_id"], questions["question_type"] = questions["case_id"], "yes_no"
    questions["organ"] = questions["image_type"].str.split("_").str[0]
    questions["modality"] = questions["image_type"].str.split("_").str[1]
    questions["options"] = pd.Series([["yes", "no"]] * len(questions))
    questions["answer"] = pd.Series([[int(flag)] for flag in questions["adversarial"]])
    responses = rng.choice(["Yes", "No", "Yes.", "no, there is not", "Yes, it does."], len(questions))
    answers = pd.DataFrame(
        {
            "question_id": questions["question_id"],
            "sample": 0,
            "response": responses,
            "status": "answered",
        }
    )
    return questions, answers


def simulate_models(count: int, cluster: np.ndarray) -> dict[str, pd.DataFrame]:
    """Draw the outcomes of models of increasing skill on the same units."""
    rng = np.random.default_rng(1)
    # All models share the difficulty of a unit, so their outcomes are correlated, as real ones are.
    easy = rng.normal(size=len(cluster))
    ids = np.arange(len(cluster)).astype(str).astype(object)
    return {
        f"model {number}": pd.DataFrame(
            {
                "metric": "accuracy",
                "unit": ids,
                "cluster": cluster,
                "numerator": (easy + rng.normal(size=len(cluster)) + 0.02 * number > 0.5).astype(float),
                "denominator": 1.0,
            }
        )
        for number in range(count)
    }


if __name__ == "__main__":
    main()
