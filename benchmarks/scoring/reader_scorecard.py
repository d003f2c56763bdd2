"""How often our reader and the parsers of other harnesses read an answer as a careful human does. Prints the tables of docs/reader.md.

    python benchmarks/scoring/reader_scorecard.py --recorded dev.jsonl --vlmevalkit CHECKOUT --lmms-eval CHECKOUT --mmmu CHECKOUT

`--recorded`: real answers with `kind, question, response, options, accepted, model` (see the README beside them); without it only the
project's own cases are scored. The other parsers are taken out of checkouts of their repositories and run as they are: VLMEvalKit's
`can_infer` and `YOrN_Extraction`, lmms-eval's `extract_mcq_answer`, its MMMU parser and POPE's comparison, MMMU's
`parse_multi_choice_response`. None of their code is in this project. Where such a parser draws an option at random, that counts as read.
An *invention* is an option read where none, or another, was meant.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.reader import read_choice

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CASES = Path(__file__).parents[2] / "tests" / "eval_harness" / "reader" / "answer_cases.jsonl"

Parser = Callable[["Answer"], "str | None"]
"""The letter read, or None. Not for questions with several answers."""


@dataclass(frozen=True)
class Answer:
    """A labelled answer: `accepted` holds every reading (letters; empty for none) that a careful human allows."""

    response: str
    options: list[str]
    type: str
    accepted: frozenset[str]
    kind: str
    family: str
    question: str | None = None
    finish_reason: str | None = None


def recorded(path: Path) -> Iterator[Answer]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        accepted = row["accepted"] if row["accepted"] is not None else [None]
        letters = frozenset(
            "" if reading in (None, [None], []) else "".join(LETTERS[index] for index in reading)
            for reading in accepted
        )
        words = {str(option).lower() for option in row["options"]}
        kind = "yes_no" if row["kind"] == "yesno" and words == {"yes", "no"} else "single"
        yield Answer(
            row["response"],
            list(row["options"]),
            kind,
            letters,
            kind_of(row["response"], letters, bool(row["needs_question"]), words == {"yes", "no"}),
            family_of(row["model"]),
            row["question"],
        )


def own_cases() -> Iterator[Answer]:
    for line in CASES.read_text().splitlines():
        row = json.loads(line)
        kind = row.get("kind", f"first cases, {row['type']}")
        yield Answer(
            row["response"], row["options"], row["type"], frozenset([row["choice"]]), kind, "",
            row.get("question"), row.get("finish_reason"),
        )  # fmt: skip


def kind_of(response: str, accepted: frozenset[str], needs_question: bool, yes_no: bool) -> str:
    """The kind of a recorded answer, by its looks."""
    if accepted == {""}:
        return "names no option, or declines"
    if needs_question:
        return "repeats the question"
    if "<think" in response or "<answer" in response:
        return "with reasoning tags"
    if re.fullmatch(r"\W*(?:answer\W*)?[A-Za-z]\W*", response.strip(), re.IGNORECASE):
        return "a letter"
    if yes_no:
        return "yes or no"
    return "up to 200 characters" if len(response) <= 200 else "long prose"


def family_of(model: str) -> str:
    names = (
        "qwen",
        "gpt",
        "llava",
        "gemini",
        "bard",
        "claude",
        "internlm",
        "mplugowl",
        "minigpt",
        "idefics",
        "instruct_blip",
    )
    lowered = model.lower().replace("chatgpt", "gpt")
    return next((name for name in names if name in lowered), lowered.split()[0])


def ours(answer: Answer) -> str:
    reading = read_choice(answer.response, answer.options, answer.type, answer.finish_reason)
    return "".join(LETTERS[index] for index in reading.choice)


def functions(path: Path, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a module defines, statement by statement: its own functions run unchanged, without the packages that only others need."""
    space: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)} | (given or {})
    for node in ast.parse(path.read_text()).body:
        try:
            exec(compile(ast.Module([node], []), str(path), "exec"), space)
        except Exception:  # an import that is not installed here, and what it was for
            continue
    return space


def others(args: argparse.Namespace) -> dict[str, Parser]:
    found: dict[str, Parser] = {}
    if args.vlmevalkit:
        infer = functions(args.vlmevalkit / "vlmeval/utils/matching_util.py")["can_infer"]
        punctuation = functions(args.vlmevalkit / "vlmeval/smp/misc.py")["process_punctuation"]
        yes_or_no = functions(args.vlmevalkit / "vlmeval/dataset/utils/yorn.py", {"process_punctuation": punctuation})[
            "YOrN_Extraction"
        ]

        def vlmevalkit(answer: Answer) -> str | None:
            if answer.type == "yes_no":
                return letter_of(yes_or_no(answer.response), answer)
            choices = {LETTERS[index]: str(option) for index, option in enumerate(answer.options)}
            letter = infer(answer.response, choices)
            return letter if letter in choices else None

        found["VLMEvalKit"] = vlmevalkit
    if args.lmms_eval:
        tasks = args.lmms_eval / "lmms_eval/tasks"
        extract = functions(tasks / "_task_utils/mcq_extract.py")["extract_mcq_answer"]
        mmmu = functions(tasks / "_task_utils/mmmu_mcq_utils.py")["parse_mmmu_multi_choice_response"]
        pope = functions(tasks / "pope/utils.py")["pope_process_results"]

        def by_pope(answer: Answer) -> str | None:
            said = pope({"answer": "yes", "question_id": 0}, [answer.response])["pope_accuracy"]["prediction"]
            return letter_of(said, answer)

        def lmms_eval(answer: Answer) -> str | None:
            if answer.type == "yes_no":
                return by_pope(answer)
            return extract(answer.response, list(LETTERS[: len(answer.options)])) or None

        def lmms_mmmu(answer: Answer) -> str | None:
            return by_pope(answer) if answer.type == "yes_no" else by_mmmu(mmmu, answer)

        found |= {"lmms-eval": lmms_eval, "lmms-eval (MMMU)": lmms_mmmu}
    if args.mmmu:
        parse = functions(args.mmmu / "mmmu/utils/eval_utils.py")["parse_multi_choice_response"]
        found["MMMU"] = lambda answer: by_mmmu(parse, answer)
    return found


def by_mmmu(parse: Callable[..., str], answer: Answer) -> str | None:
    choices = list(LETTERS[: len(answer.options)])
    return parse(answer.response, choices, dict(zip(choices, map(str, answer.options), strict=True)))


def letter_of(word: str, answer: Answer) -> str | None:
    words = [option.lower() for option in answer.options]
    return LETTERS[words.index(word.lower())] if word.lower() in words else None


def table(answers: list[Answer], readers: dict[str, Parser], by: Callable[[Answer], str], title: str) -> None:
    """Percent read right per group; inventions of all in the last row."""
    random.seed(0)  # the parsers that draw an option
    groups = sorted({by(answer) for answer in answers})
    print(f"| {title} | n | {' | '.join(readers)} |")
    print(f"|---|---:|{'---:|' * len(readers)}")
    read = {name: [(reader(answer) or "") for answer in answers] for name, reader in readers.items()}
    for group in [*groups, ""]:
        members = [index for index, answer in enumerate(answers) if group in ("", by(answer))]
        right = {name: sum(said[p] in answers[p].accepted for p in members) for name, said in read.items()}
        cells = " | ".join(f"{100 * right[name] / len(members):.1f}" for name in readers)
        print(f"| {group or '**all**'} | {len(members)} | {cells} |")
    wrong = {
        name: sum(bool(s) and s not in answer.accepted for s, answer in zip(said, answers, strict=True))
        for name, said in read.items()
    }
    print(
        f"| *inventions, percent* | {len(answers)} | {' | '.join(f'{100 * wrong[n] / len(answers):.1f}' for n in readers)} |\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--recorded", "--vlmevalkit", "--lmms-eval", "--mmmu"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    readers: dict[str, Parser] = {"ours": ours} | others(args)
    if args.recorded:
        answers = list(recorded(args.recorded))
        print(f"Recorded answers of real models: {len(answers)}\n")
        table(answers, readers, lambda answer: answer.kind, "kind of answer")
        table(answers, readers, lambda answer: answer.family, "model family")
    cases = [answer for answer in own_cases() if answer.type != "multiple"]
    print(f"The project's own cases with one answer: {len(cases)}\n")
    table(cases, readers, lambda answer: answer.kind, "kind of answer")


if __name__ == "__main__":
    main()
