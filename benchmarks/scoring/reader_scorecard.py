"""Compare our reader and the parsers of other harnesses with a careful human.

    python benchmarks/scoring/reader_scorecard.py SAMPLE ... --vlmevalkit CHECKOUT
        --lmms-eval CHECKOUT --mmmu CHECKOUT --inspect FOLDER

Prints the tables of docs/reader.md. SAMPLE is a file of labelled answers, JSON Lines of `response`,
`options`, `accepted` (the readings that a careful human accepts: lists of option positions, null
for none) and `kind` (`yesno` if the options are the words yes and no).

The other parsers are loaded from checkouts of their repositories and run unmodified; none of their
code is in this project:

- VLMEvalKit's `can_infer` and `YOrN_Extraction`
- lmms-eval's `extract_mcq_answer`, its MMMU parser and its comparison for POPE
- MMMU's `parse_multi_choice_response`
- inspect's `parse_answers` (`--inspect`: the folder with its packages)

If a parser finds no option and draws one at random, the drawn option counts as read.

*right*: the reading is one that the human accepts; *unread*: no option was read, although the
human reads one; *wrong*: an option was read that the human does not accept.
"""

import argparse
import ast
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eval_harness.reader import read_choice

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Parser = Callable[["Answer"], "str | None"]
"""Returns the letter read, or None. Only for questions with one correct option."""


@dataclass(frozen=True)
class Answer:
    """A labelled answer.

    `accepted` contains every reading that a careful human accepts: letters, or "" for none.
    """

    response: str
    options: list[str]
    type: str
    accepted: frozenset[str]


def load_answers(path: Path) -> Iterator[Answer]:
    """Yield the labelled answers of a sample."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        accepted = row["accepted"] if row["accepted"] is not None else [None]
        letters = frozenset(
            "" if not positions or positions == [None] else "".join(LETTERS[position] for position in positions)
            for positions in accepted
        )
        options = list(map(str, row["options"]))
        words = row.get("kind") == "yesno" and {option.lower() for option in options} == {
            "yes",
            "no",
        }
        yield Answer(row["response"], options, "yes_no" if words else "single", letters)


def read_with_medprobe(answer: Answer) -> str:
    """Return the letters that medprobe reads."""
    return "".join(LETTERS[at] for at in read_choice(answer.response, answer.options, answer.type).choice)


def load_functions(path: Path, globals_: dict[str, Any] | None = None) -> dict[str, Any]:
    """Execute a module statement by statement, skip those that fail, and return what it defines.

    So its functions run unmodified, without packages that only its other functions need.
    """
    namespace: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)} | (globals_ or {})
    for node in ast.parse(path.read_text()).body:
        try:
            exec(compile(ast.Module([node], []), str(path), "exec"), namespace)
        except Exception:  # an import is missing, or a name that it would have defined
            continue
    return namespace


def load_other_parsers(args: argparse.Namespace) -> dict[str, Parser]:
    """Load the parsers whose checkouts were given on the command line: name -> parser."""
    parsers: dict[str, Parser] = {}
    if args.vlmevalkit:
        # VLMEvalKit has one function for option letters and another for yes and no.
        infer = load_functions(args.vlmevalkit / "vlmeval/utils/matching_util.py")["can_infer"]
        punctuation = load_functions(args.vlmevalkit / "vlmeval/smp/misc.py")["process_punctuation"]
        yes_or_no = load_functions(
            args.vlmevalkit / "vlmeval/dataset/utils/yorn.py", {"process_punctuation": punctuation}
        )["YOrN_Extraction"]

        def vlmevalkit(answer: Answer) -> str | None:
            if answer.type == "yes_no":
                return find_letter(yes_or_no(answer.response), answer)
            choices = {LETTERS[index]: str(option) for index, option in enumerate(answer.options)}
            letter = infer(answer.response, choices)
            return letter if letter in choices else None

        parsers["VLMEvalKit"] = vlmevalkit
    if args.lmms_eval:
        tasks = args.lmms_eval / "lmms_eval/tasks"
        extract = load_functions(tasks / "_task_utils/mcq_extract.py")["extract_mcq_answer"]
        mmmu = load_functions(tasks / "_task_utils/mmmu_mcq_utils.py")["parse_mmmu_multi_choice_response"]
        pope = load_functions(tasks / "pope/utils.py")["pope_process_results"]

        def by_pope(answer: Answer) -> str | None:
            # POPE compares with the word it finds: it needs a made-up key, which does not change
            # the word.
            prediction = pope({"answer": "yes", "question_id": 0}, [answer.response])["pope_accuracy"]["prediction"]
            return find_letter(prediction, answer)

        def lmms_eval(answer: Answer) -> str | None:
            if answer.type == "yes_no":
                return by_pope(answer)
            return extract(answer.response, list(LETTERS[: len(answer.options)])) or None

        def lmms_mmmu(answer: Answer) -> str | None:
            return by_pope(answer) if answer.type == "yes_no" else by_mmmu(mmmu, answer)

        parsers |= {"lmms-eval": lmms_eval, "lmms-eval (MMMU)": lmms_mmmu}
    if args.mmmu:
        parse = load_functions(args.mmmu / "mmmu/utils/eval_utils.py")["parse_multi_choice_response"]
        parsers["MMMU"] = lambda answer: by_mmmu(parse, answer)
    if args.inspect:
        sys.path.append(str(args.inspect))
        from inspect_ai.solver._multiple_choice import parse_answers

        def inspect(answer: Answer) -> str | None:
            # Only the part of a task state that `parse_answers` reads.
            state = SimpleNamespace(output=SimpleNamespace(completion=answer.response), choices=answer.options)
            return next(iter(parse_answers(state, False)), None)

        parsers["inspect"] = inspect
    return parsers


def by_mmmu(parse: Callable[..., str], answer: Answer) -> str | None:
    """Read an answer with a parser of MMMU's signature."""
    choices = list(LETTERS[: len(answer.options)])
    return parse(answer.response, choices, dict(zip(choices, map(str, answer.options), strict=True)))


def find_letter(word: str, answer: Answer) -> str | None:
    """Return the letter of the option with this text, or None."""
    words = [option.lower() for option in answer.options]
    return LETTERS[words.index(word.lower())] if word.lower() in words else None


def format_row(name: str, parser: Parser, answers: list[Answer]) -> str:
    """Return a row of the table: percent right, unread and wrong of one parser."""
    random.seed(0)  # for parsers that draw an option at random
    readings = [parser(answer) or "" for answer in answers]
    n_right = sum(reading in answer.accepted for reading, answer in zip(readings, answers, strict=True))
    n_wrong = sum(
        bool(reading) and reading not in answer.accepted for reading, answer in zip(readings, answers, strict=True)
    )
    shares = (100 * count / len(answers) for count in (n_right, len(answers) - n_right - n_wrong, n_wrong))
    return f"| {name} | {' | '.join(f'{share:.1f}' for share in shares)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, nargs="+")
    for name in ("--vlmevalkit", "--lmms-eval", "--mmmu", "--inspect"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    readers: dict[str, Parser] = {"ours": read_with_medprobe} | load_other_parsers(args)
    for path in args.samples:
        answers = list(load_answers(path))
        print(
            f"{path.name}: {len(answers)} answers, percent\n\n| reader | right | unread | wrong |\n|---|---:|---:|---:|"
        )
        print(
            "\n".join(format_row(name, reader, answers) for name, reader in readers.items()),
            end="\n\n",
        )


if __name__ == "__main__":
    main()
