"""Build a small GMAI-MMBench test with hidden answers: 60 single-choice and 8 multiple-choice
questions.
"""

import random
from pathlib import Path

from dataset_builders.build import build
from tests.helpers import write_lines

SINGLE, MULTIPLE = 60, 8


def make_key(seed: int = 1) -> dict[str, str]:
    """Return index -> letters of the right options."""
    draw = random.Random(seed)
    singles = {str(1000 + number): draw.choice("ABCD") for number in range(SINGLE)}
    return singles | {str(2000 + number): "".join(sorted(draw.sample("ABCD", 2))) for number in range(MULTIPLE)}


def build_test(folder: Path, answers: dict[str, str] | None = None) -> tuple[Path, Path]:
    """Build (public dataset, private answers) in `folder`; the public questions have no answers."""
    answers = make_key() if answers is None else answers
    source = folder / "source"
    source.mkdir(parents=True)
    columns = ["index", "image", "question", "A", "B", "C", "D", "answer"]
    rows = [["1", "iVBOR" + "A" * 203, "Which one is shown?", "red", "blue", "green", "grey", "B"]]
    rows += [[index, "iVBOR" + "A" * 203, f"Which of these, {index}?", *question_text(index), ""] for index in answers]
    table = "".join("\t".join(row) + "\n" for row in [columns, *rows])
    (source / "GMAI_mm_bench_TEST_part_1.tsv").write_text(table)
    (source / "key.tsv").write_text(
        "index\tanswer\n" + "".join(f"{index}\t{letters}\n" for index, letters in answers.items())
    )
    build("gmai-mmbench", source=source, out=folder / "gmai", text_only=True)
    return folder / "gmai", folder / "gmai-answers"


def question_text(index: str) -> list[str]:
    return [f"{colour} {index}" for colour in ("red", "blue", "green", "grey")]


def write_upload(path: Path, right: int, seed: int = 0, answers: dict[str, str] | None = None) -> Path:
    """Write a complete file of answers.

    The first `right` of the shuffled single-choice questions are answered correctly, all others
    wrongly.
    """
    answers = make_key() if answers is None else answers
    order = [index for index in answers if len(answers[index]) == 1]
    random.Random(seed).shuffle(order)
    letters_by_index = {
        index: letters if index in order[:right] else wrong_letters(letters) for index, letters in answers.items()
    }
    return write_lines(
        path,
        [{"index": index, "response": ", ".join(letters)} for index, letters in letters_by_index.items()],
    )


def wrong_letters(letters: str) -> str:
    return "ABCD"["ABCD".index(letters[0]) - 1] if len(letters) == 1 else "".join(set("ABCD") - set(letters))[:1]
