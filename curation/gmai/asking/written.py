"""A question as it is written to the files, and the draws of earlier runs, which stand as long as they are right: what a person has
validated must not change behind his back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from curation.gmai.asking.options import Choice
from curation.gmai.cases import Case
from dataset_builders.files import replace_file
from dataset_builders.schema import LETTERS

DRAWN = "questions.json"
CASES = "cases.json"
"""What the pages show of the last run."""


@dataclass(frozen=True)
class Written:
    """A case with its words, options and split."""

    case: Case
    question: str
    choice: Choice
    split: str

    @property
    def letters(self) -> str:
        """The right letters: "B", or "A,C"."""
        return ",".join(LETTERS[at] for at in self.choice.right)


def read_drawn(private: Path) -> dict[str, tuple[str, Choice]]:
    """Case -> question and options of the last run."""
    path = private / DRAWN
    if not path.is_file():
        return {}
    return {
        key: (entry["question"], Choice(tuple(entry["options"]), tuple(entry["right"])))
        for key, entry in json.loads(path.read_text(encoding="utf-8")).items()
    }


def write_drawn(private: Path, written: list[Written], before: dict[str, tuple[str, Choice]]) -> None:
    """Keep the questions and options of this run, and of cases that are not in it but were."""
    drawn = before | {each.case.case: (each.question, each.choice) for each in written}
    document = {
        key: {"question": question, "options": list(choice.options), "right": list(choice.right)}
        for key, (question, choice) in drawn.items()
    }
    replace_file(private / DRAWN, json.dumps(document, ensure_ascii=False, indent=0).encode())
