"""What to look at before publishing a dataset of any benchmark's format: what answerers get that never see an image, scored by the
benchmark's own metrics, and what repeats. Reads a built dataset; writes one HTML page.

See also: MediConfusion's own report, on its exported folder (`quality.py`); the page's parts (`quality_page.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from curation.report.blind_baseline import BlindAsking, BlindModel, ask_blind
from curation.report.quality import OFTEN, alike_images, image_warnings
from curation.report.quality_page import STYLE, groups_of, score_rows, table_of
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.metrics import HEADLINE
from eval_harness.derive.scoring import score
from eval_harness.scores.grading import shown_images

Chosen = dict[str, tuple[int, ...]]
"""Question id -> what a rule answers."""


@dataclass(frozen=True)
class TextQuality:
    """The report's numbers. `blind`: rule -> the headline metric's value, low, high (95%), chance, verdict."""

    name: str
    family: str
    split: str
    metric: str
    questions: int
    images: int
    blind: dict[str, dict[str, Any]]
    repeated_questions: list[list[str]]
    """Questions on one image with the same text and options."""
    same_images: list[list[str]]
    alike_images: list[tuple[str, str, int]]
    unreadable_images: dict[str, str]
    often: dict[str, int]
    blind_model: BlindModel | None = None

    def warnings(self) -> list[str]:
        """What deserves a look, in words."""
        found = [
            f"{rule} gets {numbers['value']:.1f} without the images (95%: {numbers['low']:.1f} to {numbers['high']:.1f}; chance "
            f"{numbers['chance']:.1f}): the text gives answers away."
            for rule, numbers in self._blind_scores().items()
            if numbers["verdict"] == "better"
        ]
        if self.repeated_questions:
            found.append(f"{len(self.repeated_questions)} questions are asked more than once of the same image.")
        found += image_warnings(self.unreadable_images, self.same_images, self.alike_images)
        return found

    def _blind_scores(self) -> dict[str, dict[str, Any]]:
        blind = self.blind_model
        return self.blind | ({blind.model: blind.scores[self.metric]} if blind else {})


def check_text(data: Path, blind: BlindAsking | None = None) -> TextQuality:
    """Measure the first split of a built dataset whose answers are there. Raises BadInput where none has them."""
    repository = open_repository(data)
    for name in repository.splits:
        questions = repository.questions(name)
        questions = questions[questions["answer"].map(len) > 0]
        if len(questions):
            break
    else:
        raise BadInput(f"{data}: no split has answers, so nothing can be said of what the text gives away.")
    metric = HEADLINE[repository.family]
    scores = {
        rule: score(repository.family, questions, _answers(answer(questions))).scores[metric].model_dump()
        for rule, answer in RULES.items()
    }
    pictures = {image: stored for case in repository.cases(name) for image, stored in case.images.items()}
    same, alike, unreadable = alike_images({image: partial(bytes, stored) for image, stored in pictures.items()})
    text = questions["question"].str.casefold().str.split().str.join(" ")
    options = questions["options"].map(lambda shown: tuple(sorted(map(str.casefold, shown))))
    repeated = questions["question_id"].groupby([questions["case_id"], questions["image_id"], text, options]).agg(list)
    images = shown_images(questions)
    use = images.value_counts()
    return TextQuality(
        repository.name,
        repository.family,
        name,
        metric,
        len(questions),
        int(images.nunique()),
        scores,
        [group for group in repeated if len(group) > 1],
        same,
        alike,
        unreadable,
        {str(image): int(count) for image, count in use.items() if count > OFTEN * use.median()},
        ask_blind(repository.family, questions, blind.model, blind.journal, blind.asking) if blind else None,
    )


def _answers(chosen: Chosen) -> pd.DataFrame:
    return pd.DataFrame(
        {"question_id": list(chosen), "sample": 0, "choice": list(chosen.values()), "status": "answered"}
    )


def _each(pick: Callable[[list[str]], int]) -> Callable[[pd.DataFrame], Chosen]:
    """A rule that looks at the options alone."""

    def answers(questions: pd.DataFrame) -> Chosen:
        return {
            str(name): (pick(list(options)),)
            for name, options in zip(questions["question_id"], questions["options"], strict=True)
        }

    return answers


def _most_often(questions: pd.DataFrame) -> Chosen:
    """The option that is most often right where the same text stands in other cases (no such text: the first option)."""
    right: dict[str, Counter[str]] = defaultdict(Counter)
    in_case: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = questions[["question_id", "case_id", "question", "options", "answer"]].to_dict("records")
    for row in rows:
        texts = [row["options"][at] for at in row["answer"]]
        right[row["question"]].update(texts)
        in_case[row["case_id"], row["question"]].update(texts)
    chosen: Chosen = {}
    for row in rows:
        others = right[row["question"]] - in_case[row["case_id"], row["question"]]
        chosen[str(row["question_id"])] = (
            max(range(len(row["options"])), key=lambda at: (others[row["options"][at]], -at)),
        )
    return chosen


RULES: dict[str, Callable[[pd.DataFrame], Chosen]] = {
    "always the first option": _each(lambda options: 0),
    "always the last option": _each(lambda options: len(options) - 1),
    "the longest option": _each(lambda options: max(range(len(options)), key=lambda at: len(options[at]))),
    "the shortest option": _each(lambda options: min(range(len(options)), key=lambda at: len(options[at]))),
    "what is most often right for this text elsewhere in the set": _most_often,
}
"""Answerers that never see an image."""


def write_text_report(quality: TextQuality, out: Path) -> None:
    """Write the page `out` (HTML) and the numbers beside it (`.json`)."""
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page(quality).encode("utf-8"))
    numbers = asdict(quality) | {"warnings": quality.warnings()}
    numbers["format"] = numbers.pop("family")
    write_json(out.with_suffix(".json"), numbers, ensure_ascii=True)


def page(quality: TextQuality) -> str:
    """The whole page."""
    warnings = "".join(f"<li>{escape(text)}</li>" for text in quality.warnings()) or "<li>Nothing stands out.</li>"
    head = ("answerer", quality.metric, "95% interval", "chance", "than chance")
    alike = ", ".join(f"{escape(a)} / {escape(b)} ({bits} bits)" for a, b, bits in quality.alike_images) or "none"
    often = ", ".join(f"{escape(image)} ({count})" for image, count in quality.often.items()) or "none"
    model = ""
    if quality.blind_model is not None:
        blind = quality.blind_model
        statuses = ", ".join(f"{count} {status}" for status, count in blind.statuses.items() if count)
        model = (
            f"<h3>{escape(blind.model)}, shown no image (temperature {blind.temperature:g}: {statuses})</h3>"
            + table_of(
                ("asked without images", "value", "95% interval", "chance", "than chance"), score_rows(blind.scores)
            )
        )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(quality.name)}: quality</title><style>{STYLE}</style></head><body>
<h1>{escape(quality.name)}</h1>
<p>{quality.questions} questions ({quality.split}) on {quality.images} images, scored as {escape(quality.family)}.</p>
<h2>Worth a look</h2><ul>{warnings}</ul>
<h2>Without looking at the image</h2>
{table_of(head, score_rows(quality.blind))}{model}
<h2>Questions</h2><p>Asked more than once of one image: {groups_of(quality.repeated_questions)}.</p>
<h2>Images</h2><p>The same file: {groups_of(quality.same_images)}. Look alike: {alike}. In many more questions than others: {often}.</p>
</body></html>
"""
