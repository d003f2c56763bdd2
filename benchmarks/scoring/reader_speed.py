"""Check that reading a response is fast enough.

Limits: on average 0.15 ms for up to 200 characters and 0.5 ms for about 1,000; at most 50 ms for
any response.

    python benchmarks/scoring/reader_speed.py [--recorded FILE]

Measures the project's own test cases, recorded answers (JSON Lines of `response`, `options`), and
one unit repeated many times, as a model in a loop or a hostile submitter writes it. CPU time, best
of three. Exits with status 1 if a limit is exceeded.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

from eval_harness.reader import read_choice

CASES = Path(__file__).parents[2] / "tests" / "eval_harness" / "reader" / "answer_cases.jsonl"
OPTIONS = ["Empyema", "Lung abscess", "Bronchiectasis", "Sarcoidosis"]
LIMITS = {"up to 200 characters": 0.15, "700 to 1,300 characters": 0.5}
"""Mean milliseconds per response."""
LONGEST = 50.0
"""Maximum milliseconds for a single response."""
UNITS = (
    "A.A.A.", "answer: ", "A. Empyema. ", "Option A is wrong. ", "A, ", "(A) ", "the answer is A. ", "yes. ", "no ", "1 = 2, ",
    "lung abscess ", "I think ", "not ", "is wrong ", "A is correct. ", "\\boxed{A} ", "<answer>A</answer>", "<think>", "wait, ",
    "so ", "\n", " ", "a", "あB", "The lesion is seen in the left lung. ", "cannot be determined ", '{"answer": ', "- [ ] A ",
    "3 mm < 5 cm, ", "\\frac{1}{2} ", "a) yes b) ",
)  # fmt: skip
_WORDS = "A B C D answer option is the not correct wrong : . , ( ) [ ] < > = - 1 50 % mm yes no lung abscess think so"
PIECES = (*_WORDS.split(), "\n")


def milliseconds(response: str, options: list[str], kind: str) -> float:
    """Return the CPU milliseconds to read a response, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time_ns()
        read_choice(response, options, kind)
        best = min(best, time.process_time_ns() - start)
    return best / 1e6


def print_times(title: str, rows: list[tuple[str, list[str], str]]) -> bool:
    """Print the mean and the worst time by length; return whether every limit is kept."""
    times = [(len(response), milliseconds(response, options, kind)) for response, options, kind in rows]
    within_limits = True
    groups = {
        "up to 200 characters": [times_ms for length, times_ms in times if length <= 200],
        "700 to 1,300 characters": [times_ms for length, times_ms in times if 700 <= length <= 1300],
        "all": [times_ms for _, times_ms in times],
    }
    for name, times_ms in groups.items():
        if times_ms:
            mean = statistics.mean(times_ms)
            print(f"{title}, {name}: n {len(times_ms)}, mean {mean:.3f} ms, worst {max(times_ms):.1f} ms")
            within_limits &= mean <= LIMITS.get(name, LONGEST) and max(times_ms) <= LONGEST
    return within_limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=Path, help="file of recorded answers")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random units")
    args = parser.parse_args()
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    within_limits = print_times("own cases", [(row["response"], row["options"], row["type"]) for row in cases])
    if args.recorded:
        rows = [json.loads(line) for line in args.recorded.read_text().splitlines()]
        answers = [(row["response"], list(map(str, row["options"])), "single") for row in rows if row.get("options")]
        within_limits &= print_times("recorded", answers)
    draw = random.Random(args.seed)
    # Random units find slow patterns that were not foreseen.
    units = (
        *UNITS,
        *(" ".join(draw.choices(PIECES, k=draw.randint(1, 5))) + " " for _ in range(20)),
    )
    kinds = (("single", OPTIONS), ("multiple", OPTIONS), ("yes_no", ["yes", "no"]))
    repeated = [
        ((unit * length)[:length], options, kind)
        for unit in units
        for length in (2_000, 40_000, 400_000)
        for kind, options in kinds
    ]
    worst = max(repeated, key=lambda row: milliseconds(*row))
    worst_ms = milliseconds(*worst)
    print(
        f"repeated units: n {len(repeated)}, worst {worst_ms:.1f} ms ({worst[0][:20]!r}, {len(worst[0]):,}, {worst[2]})"
    )
    sys.exit(not within_limits or worst_ms > LONGEST)


if __name__ == "__main__":
    main()
