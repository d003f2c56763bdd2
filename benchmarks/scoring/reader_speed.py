"""CPU time of reading one response against the limit of the gate: 50 us and 1 us a character. Run: python reader_speed.py

Ordinary answers (the project's own cases) and what a model in a loop or a hostile submitter writes: one unit repeated. Best of several
runs, in microseconds; `of limit` above 1 is over it, and fails for repeated units. `--seed` draws further units of words and signs,
`--units` how many. `--recorded` FILE: recorded answers (JSON Lines of `response`, `options`, `question`) with nothing remembered of a
response before it, once with the options known and once with them new.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from eval_harness import answer_reading
from eval_harness.answers import read_choice

CASES = Path(__file__).parents[2] / "tests" / "eval_harness" / "answer_reading" / "answer_cases.jsonl"
OPTIONS = ["Empyema", "Lung abscess", "Bronchiectasis", "Sarcoidosis"]
UNITS = (
    *(
        "A.A.A.",
        "answer: ",
        "A. Empyema. ",
        "Option A is wrong. ",
        "A, ",
        "(A) ",
        "the answer is A. ",
        "yes. ",
        "no ",
        "1 = 2, ",
    ),
    *(
        "lung abscess ",
        "I think ",
        "not ",
        "is wrong ",
        "A is correct. ",
        "\\boxed{A} ",
        "<answer>A</answer>",
        "<think>",
        "wait, ",
    ),
    *(
        "so ",
        "\n",
        " ",
        "a",
        "あB",
        "The lesion is seen in the left lung. ",
        "cannot be determined ",
        '{"answer": ',
        "- [ ] A ",
    ),
    *("3 mm < 5 cm, ", "\\frac{1}{2} "),
)
PIECES = (
    *(
        "A",
        "B",
        "C",
        "D",
        "answer",
        "option",
        "is",
        "the",
        "not",
        "correct",
        "wrong",
        ":",
        ".",
        ",",
        "(",
        ")",
        "[",
        "]",
        "<",
        ">",
        "=",
    ),
    *("-", "1", "50", "%", "mm", "yes", "no", "lung", "abscess", "think", "so", "\n"),
)


def limit(length: int) -> float:
    """Microseconds that a response of this length may take."""
    return 50 + length


def microseconds(response: str, options: list[str], kind: str, runs: int = 5) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.process_time_ns()
        read_choice(response, options, kind)
        best = min(best, time.process_time_ns() - start)
    return best / 1000


def caches() -> list[Any]:
    """What the reader remembers from one response to the next."""
    modules = [
        importlib.import_module(m.name)
        for m in pkgutil.walk_packages(answer_reading.__path__, "eval_harness.answer_reading.")
    ]
    found = (value for module in modules for value in vars(module).values() if hasattr(value, "cache_clear"))
    return list({id(cache): cache for cache in found}.values())


OF_QUESTIONS = 4096
"""The size from which on a cache is of what is made of a question, not of a response."""


def print_recorded(path: Path, runs: int = 3) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    answers = [
        (row["response"], list(map(str, row["options"])), row.get("question")) for row in rows if row.get("options")
    ]
    for name, known in (("options known", True), ("options new", False)):
        cleared = [
            cache
            for cache in caches()
            if "stem" not in cache.__name__ and not (known and cache.cache_parameters()["maxsize"] >= OF_QUESTIONS)
        ]
        shares = []
        for response, options, question in answers:
            kind = "yes_no" if {option.lower() for option in options} == {"yes", "no"} else "single"
            best = float("inf")
            for _ in range(runs + 1):  # the first fills what is kept
                for cache in cleared:
                    cache.cache_clear()
                start = time.process_time_ns()
                read_choice(response, options, kind, question)
                best = min(best, time.process_time_ns() - start)
            shares.append(best / 1000 / limit(len(response)))
        shares.sort()
        at = {percent: shares[len(shares) * percent // 100] for percent in (50, 90, 95, 99)}
        over = sum(share > 1 for share in shares) / len(shares)
        print(
            f"{name}: n {len(shares)}, of limit: "
            + ", ".join(f"p{k} {v:.2f}" for k, v in at.items())
            + f", over it {over:.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--units", type=int, default=20, help="units drawn at random besides the fixed ones")
    parser.add_argument("--recorded", type=Path, help="recorded answers to be measured instead")
    args = parser.parse_args()
    if args.recorded:
        print_recorded(args.recorded)
        return
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    for row in rows:
        read_choice(row["response"], row["options"], row["type"])  # compiles the options, once a question
    times = [(microseconds(row["response"], row["options"], row["type"], 3), row["response"]) for row in rows]
    shares = [spent / limit(len(response)) for spent, response in times]
    print(
        f"own cases: n {len(times)}, median {statistics.median(spent for spent, _ in times):.0f} us, of limit: median "
        f"{statistics.median(shares):.2f}, over it {sum(share > 1 for share in shares)}, worst {max(shares):.1f}"
    )
    draw = random.Random(args.seed)
    drawn = [" ".join(draw.choices(PIECES, k=draw.randint(1, 5))) + " " for _ in range(args.units)]
    worst = 0.0
    for unit in (*UNITS, *drawn):
        for length in (2_000, 40_000, 400_000):
            for kind, options in (("single", OPTIONS), ("multiple", OPTIONS), ("yes_no", ["yes", "no"])):
                response = (unit * length)[:length]
                share = microseconds(response, options, kind, 2) / limit(length)
                if share > 0.9:  # perhaps only on a busy machine
                    share = min(share, microseconds(response, options, kind, 10) / limit(length))
                worst = max(worst, share)
                if share > 1:
                    print(f"{unit!r} x {length:,} {kind}: {share:.2f} of limit")
    print(f"repeated units: {len(UNITS) + len(drawn)}, worst {worst:.2f} of limit")
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
