"""The words of the questions: templates per (task, granularity), built in, custom, or proposed by a language model and reviewed; and what
the text alone gives away: each branch answered without its images, by the option that is most often right elsewhere.

A question names the modality, the task and the granularity, and holds no label, synonym or parent (GMAI-MMBench, "QA generation").
See also: a language model without images (`medprobe curate quality`, `report/blind_baseline.py`).
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curation.gmai.candidate_cases import Candidate, Cell
from curation.gmai.label_table import LabelTable
from curation.gmai.selecting import WrittenQuestion
from curation.gmai.sources import BOX_LEVEL, CONTOUR_LEVEL, GRANULARITIES, IMAGE_LEVEL, MASK_LEVEL
from curation.images.image_table import read_dataframe, require_columns
from curation.report.blind_baseline import SIGNIFICANCE_LEVEL, TextAlone, compare_with_chance, measure_text_alone
from curation.writing.asking import AskSettings, Writer, ask_once
from dataset_builders.errors import BadInput, Problems
from dataset_builders.files import replace_file
from dataset_builders.terms import find_task_noun, normalize_term, terms_by_name
from eval_harness.scores.ranks import holm_adjust

PLACEHOLDER = "<modality>"
CANDIDATES_FILE = "candidates.csv"
REPLIES_FILE = "candidates.jsonl"
SAMPLED_LABELS, CANDIDATES_PER_LABEL = 10, 10
"""Labels a cell is asked about, and candidates for each (the paper's figures)."""
REGION_PHRASES = {
    BOX_LEVEL: "the region inside the box",
    MASK_LEVEL: "the area that is tinted as a mask",
    CONTOUR_LEVEL: "the area inside the contour",
}
BUILTIN_TEMPLATES = {
    IMAGE_LEVEL: (
        "Look at this <modality> image as a whole. Which {noun} among the options fits it best?",
        "Considering the entire <modality> image, which option names the {noun} that it shows?",
        "Which of the following is the right {noun} for the <modality> image as a whole?",
    )
} | {
    granularity: (
        f"Look at {region} on this <modality> image. Which option names the {{noun}} there?",
        f"Which {{noun}} among the options fits {region} on this <modality> image?",
        f"Which {{noun}} belongs to {region} of this <modality> image?",
    )
    for granularity, region in REGION_PHRASES.items()
}
MULTIPLE_CHOICE_HINT = " More than one option can be right."
SLICES_PREFIX = "These {count} images are slices of one volume, in their order; the same target is marked on each. "
GRANULARITY_WORDS = {
    IMAGE_LEVEL: ("image", "picture", "photograph", "scan", "radiograph", "slide", "frame"),
    BOX_LEVEL: ("box", "boxed", "rectangle", "bounding"),
    MASK_LEVEL: ("mask", "masked", "tinted", "shaded", "highlighted", "marked", "highlight", "coloured", "colored"),
    CONTOUR_LEVEL: ("contour", "outline", "outlined", "contoured", "border"),
}
"""Words of which a question has to hold one, so that it says what is asked about."""
TEMPLATE_SYSTEM_PROMPT = "You write questions for a benchmark of medical images."
TEMPLATE_PROMPT = (
    "Write {each} different multiple-choice questions for a benchmark of medical images. Each is about one {modality} image, asks for the "
    "{noun} ({task}), and is about {about}. The answer will be \"{label}\", but no question may hold this answer, a synonym, or any hint "
    "at it. Each question names the kind of image ({modality}) and says what it is about ({about}). One question per line, nothing else."
)  # fmt: skip


def template_problem(question: str, task: str, granularity: str, forbidden: Iterable[str]) -> str:
    """The problem with a question whose modality is a placeholder; "" if there is none. forbidden: folded labels, synonyms, parents."""
    text = f" {normalize_term(question.replace(PLACEHOLDER, ' '))} "
    if question.count(PLACEHOLDER) != 1:
        return "does not name the modality once"
    known = terms_by_name("task").get(normalize_term(task))
    stems = [
        word[:5]
        for word in (*normalize_term(find_task_noun(task)).split(), *(known.related if known else ()))
        if len(word) > 3
    ]
    if not any(word.startswith(stem) for word in text.split() for stem in stems):
        return "does not say what is asked for"
    if not any(f" {word} " in text for word in GRANULARITY_WORDS[granularity]):
        return "does not say what it is about"
    hint = next((word for word in sorted(forbidden) if word and re.search(rf" {re.escape(word)}(s|es)? ", text)), None)
    if hint is not None:
        return f"holds the label {hint!r}"
    is_sentence = question.rstrip().endswith((".", "?")) and len(question) <= 400
    return "" if is_sentence else "is no sentence"


def render_question(template: str, case: Candidate) -> str:
    """A template as the question of a case."""
    before = SLICES_PREFIX.format(count=1 + len(case.item.more)) if case.item.more else ""
    return before + template.replace(PLACEHOLDER, case.modality) + (MULTIPLE_CHOICE_HINT if case.is_multiple else "")


def usable_templates(
    cells: dict[Cell, list[Candidate]], table: LabelTable, own: Path | None, candidates: Path
) -> tuple[dict[Cell, list[str]], dict[Cell, str]]:
    """The templates of each cell that hold no label of the cell, and cells without one -> why.

    One's own file and reviewed candidates of a model (column keep: yes) go before ours. Raises BadInput listing own templates that
    break the rules.
    """
    given = _read_templates(own) if own is not None else {}
    for key, questions in (_read_templates(candidates) if candidates.is_file() else {}).items():
        given.setdefault(key, []).extend(questions)
    problems = Problems()
    found: dict[Cell, list[str]] = {}
    without: dict[Cell, str] = {}
    for cell, cases in cells.items():
        _, task, granularity = cell
        forbidden = forbidden_words(cases, table)
        mine = given.get((task, granularity), [])
        ours = [text.format(noun=find_task_noun(task)) for text in BUILTIN_TEMPLATES[granularity]]
        wrong = {text: template_problem(text, task, granularity, forbidden) for text in mine or ours}
        for question in filter(wrong.get, mine):
            problems.add("questions", question, wrong[question])
        if good := [text for text, why in wrong.items() if not why]:
            found[cell] = good
        else:
            without[cell] = next(iter(wrong.values()))
    problems.check("Rewrite these questions, with <modality> where the kind of image stands.")
    return found, without


def forbidden_words(cases: Iterable[Candidate], table: LabelTable) -> set[str]:
    """Everything that must not stand in a question of a cell: the names, synonyms, raw labels and ancestors of all its labels."""
    return {word for name in {name for case in cases for name in case.answers} for word in table.forbidden_words(name)}


def _read_templates(path: Path) -> dict[tuple[str, str], list[str]]:
    """(task, granularity) -> questions of a table; of one with a column `keep`, those that a person has marked."""
    table = read_dataframe(path)
    require_columns(table, path, ("task", "granularity", "question"), "It needs task, granularity, question.")
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in table.to_dict("records"):
        if row["granularity"] not in GRANULARITIES:
            raise BadInput(f"{path}: granularity {row['granularity']!r} is not one of {', '.join(GRANULARITIES)}.")
        if str(row.get("keep", "yes")).strip().casefold() in ("yes", "y", "1", "true", "x"):
            found[str(row["task"]), str(row["granularity"])].append(" ".join(str(row["question"]).split()))
    return found


def propose_templates(
    cells: dict[Cell, list[Candidate]], table: LabelTable, model: Writer, private: Path, asking: AskSettings
) -> dict[str, int]:
    """Have a model write candidates for each cell from ten sampled labels; those that keep the rules go to candidates.csv, where a person
    writes `yes` into the column keep. Replies are journalled: a second run asks only what failed. Returns counts."""
    prompts: dict[str, str] = {}
    for cell, cases in cells.items():
        names = sorted({name for case in cases for name in case.answers})
        names.sort(key=lambda name: hashlib.sha256(f"{asking.seed}\0{cell}\0{name}".encode()).digest())
        for name in names[:SAMPLED_LABELS]:
            prompts[json.dumps([model.name, *cell, name], ensure_ascii=False)] = TEMPLATE_PROMPT.format(
                each=CANDIDATES_PER_LABEL,
                modality=cell[0],
                noun=find_task_noun(cell[1]),
                task=cell[1],
                about=REGION_PHRASES.get(cell[2], "the whole image"),
                label=name,
            )
    entries = ask_once(model, prompts, asking, private / REPLIES_FILE, "proposing questions", TEMPLATE_SYSTEM_PROMPT)
    file = private / CANDIDATES_FILE
    before = read_dataframe(file).to_dict("records") if file.is_file() else []
    kept = {(row["task"], row["granularity"], row["question"]): str(row.get("keep", "")) for row in before}
    rows: dict[tuple[str, str, str], str] = {}
    counts = {"asked": len(prompts), "candidates": 0, "against the rules": 0}
    for key, entry in entries.items():
        _, modality, task, granularity, _ = json.loads(key)
        forbidden = forbidden_words(cells[modality, task, granularity], table)
        for question in filter(None, (_parse_template(line, modality) for line in entry["reply"].splitlines())):
            counts["candidates"] += 1
            if template_problem(question, task, granularity, forbidden):
                counts["against the rules"] += 1
            else:
                rows[task, granularity, question] = kept.get((task, granularity, question), "")
    made = pd.DataFrame(
        [(*key, keep) for key, keep in rows.items()], columns=["task", "granularity", "question", "keep"]
    )
    replace_file(file, lambda path: made.to_csv(path, index=False))
    return counts | {"to review": len(rows)}


def _parse_template(line: str, modality: str) -> str:
    """A line of a reply without its number, the modality replaced by the placeholder; "" where it is blank."""
    text = re.sub(r"^\s*(?:\d+[.)]|[-*])\s*", "", line).strip().strip('"')
    return re.sub(rf"(?<!\w){re.escape(modality)}(?!\w)", PLACEHOLDER, text, count=1, flags=re.IGNORECASE)


ALL_QUESTIONS = ("all", "all", "all")


@dataclass(frozen=True)
class Branch:
    """The questions of one (modality, task, granularity), or of the whole set (`ALL`), without their images. `flagged`: the text gives
    answers away, among all branches (Holm)."""

    cell: Cell
    found: TextAlone
    flagged: bool

    def __str__(self) -> str:
        name = "all questions" if self.cell == ALL_QUESTIONS else " > ".join(self.cell)
        return f"{name}: {self.found.correct:.0f} of {self.found.questions} right without the image (chance: {self.found.chance:.0f})"

    def row(self) -> dict[str, Any]:
        """A row of report/blind_majority.csv."""
        return (
            dict(zip(("modality", "task", "granularity"), self.cell, strict=True))
            | vars(self.found)
            | {"flagged": self.flagged}
        )


def blind_majority(written: list[WrittenQuestion]) -> list[Branch]:
    """The whole set and each (modality, task, granularity), answered by the option that is most often right where it is offered, as learned
    from questions about other images and patients."""
    own: dict[Cell, list[WrittenQuestion]] = defaultdict(list)
    for each in written:
        own[each.case.cell].append(each)
    found = {cell: _answer_branch(questions) for cell, questions in sorted(own.items())}
    every = [_single_choice(each)[0] for cell in found for each in own[cell]]
    found = {ALL_QUESTIONS: compare_with_chance(sum(each.correct for each in found.values()), every)} | found
    adjusted = holm_adjust(np.array([each.p for each in found.values()]))
    return [
        Branch(cell, each, bool(p <= SIGNIFICANCE_LEVEL) and each.is_large)
        for (cell, each), p in zip(found.items(), adjusted, strict=True)
    ]


def _single_choice(each: WrittenQuestion) -> tuple[list[str], int]:
    """A question as a choice of one: (options, the right one). Of several correct options one stays, drawn by its case."""
    options, right = each.choice.options, each.choice.right
    kept = random.Random(f"text alone {each.case.order}").choice(right)
    shown = [at for at in range(len(options)) if at == kept or at not in right]
    return [options[at] for at in shown], shown.index(kept)


def _answer_branch(own: list[WrittenQuestion]) -> TextAlone:
    """The questions of a branch: those of a fold by what the other folds say. No patient or image is in two folds."""
    held = [[each.case.item.patient, *(picture for picture, _ in each.case.item.pictures)] for each in own]
    choices = [_single_choice(each) for each in own]
    return measure_text_alone([options for options, _ in choices], [right for _, right in choices], held)


def check_text_alone(branches: list[Branch], written: list[WrittenQuestion]) -> None:
    """Raise BadInput where the text gives answers away, naming branches and what is most often right there."""
    flagged = [each for each in branches if each.flagged]
    if not flagged:
        return
    cells = {each.cell for each in flagged}
    own = [each for each in written if cells & {ALL_QUESTIONS, each.case.cell}]
    [(often, times)] = Counter(name for each in own for name in each.case.answers).most_common(1)
    raise BadInput(
        f"the text alone gives answers away ({'; '.join(str(each) for each in flagged[:3])}; most often right: {often!r}, "
        f"{times} times). Give a smaller `per_answer` or more cases of the other labels, or leave a label out; --accept-text-alone builds "
        "it as it is."
    )
