"""A GMAI-MMBench test with hidden answers, made from nothing: 60 single-choice questions and 8 with several right options."""

import random
from pathlib import Path

from dataset_builders.build import build
from tests.helpers import write_lines

SINGLE, MULTIPLE = 60, 8


def key(seed: int = 1) -> dict[str, str]:
    """Index -> letters of the right options."""
    draw = random.Random(seed)
    singles = {str(1000 + number): draw.choice("ABCD") for number in range(SINGLE)}
    return singles | {str(2000 + number): "".join(sorted(draw.sample("ABCD", 2))) for number in range(MULTIPLE)}


def build_test(folder: Path, answers: dict[str, str] | None = None) -> tuple[Path, Path]:
    """(public dataset, private answers) in `folder`; questions of the key without answers in the public one."""
    answers = key() if answers is None else answers
    source = folder / "source"
    source.mkdir(parents=True)
    columns = ["index", "image", "question", "A", "B", "C", "D", "answer"]
    rows = [["1", "iVBOR" + "A" * 200, "Which one is shown?", "red", "blue", "green", "grey", "B"]]
    rows += [[index, "iVBOR" + "A" * 200, f"Which of these, {index}?", *words(index), ""] for index in answers]
    table = "".join("\t".join(row) + "\n" for row in [columns, *rows])
    (source / "GMAI_mm_bench_TEST_part_1.tsv").write_text(table)
    (source / "key.tsv").write_text(
        "index\tanswer\n" + "".join(f"{index}\t{said}\n" for index, said in answers.items())
    )
    build("gmai-mmbench", source=source, out=folder / "gmai", text_only=True)
    return folder / "gmai", folder / "gmai-answers"


def words(index: str) -> list[str]:
    return [f"{colour} {index}" for colour in ("red", "blue", "green", "grey")]


def upload(path: Path, right: int, seed: int = 0, answers: dict[str, str] | None = None) -> Path:
    """A whole file of answers of which the first `right` of the shuffled single-choice questions are right, and all others wrong."""
    answers = key() if answers is None else answers
    order = [index for index in answers if len(answers[index]) == 1]
    random.Random(seed).shuffle(order)
    said = {index: letters if index in order[:right] else wrong(letters) for index, letters in answers.items()}
    return write_lines(path, [{"index": index, "response": ", ".join(letters)} for index, letters in said.items()])


def wrong(letters: str) -> str:
    return "ABCD"["ABCD".index(letters[0]) - 1] if len(letters) == 1 else "".join(set("ABCD") - set(letters))[:1]
