"""Question templates for each task and granularity: built in, custom, or proposed by a model.

A question names the modality, the task and the granularity. It must not contain a label that is an
answer, or its synonyms or parents (GMAI-MMBench, "QA generation").

This module also measures what the text alone gives away: the questions of each branch are answered
without images, by the option that is most often correct in other questions.
See also: the same measurement with a language model (`medprobe curate quality`,
`report/blind_baseline.py`).
"""

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
from eval_harness.scores.comparisons import holm_adjust

PLACEHOLDER = "<modality>"
CANDIDATES_FILE = "candidates.csv"
TEMPLATE_REPLIES_FILE = "candidates.jsonl"
SAMPLED_LABELS, CANDIDATES_PER_LABEL = 10, 10
"""Number of labels per cell that the model writes questions about, and of candidates per label (as
in the paper).
"""
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
    MASK_LEVEL: (
        "mask",
        "masked",
        "tinted",
        "shaded",
        "highlighted",
        "marked",
        "highlight",
        "coloured",
        "colored",
    ),
    CONTOUR_LEVEL: ("contour", "outline", "outlined", "contoured", "border"),
}
"""Granularity -> words, one of which a question must contain to say which part of the image it is
about.
"""
TEMPLATE_SYSTEM_PROMPT = "You write questions for a benchmark of medical images."
TEMPLATE_PROMPT = (
    "Write {each} different multiple-choice questions for a benchmark of medical images. Each is "
    "about one {modality} image, asks for the "
    "{noun} ({task}), and is about {about}. The answer will be \"{label}\", but no question may "
    "hold this answer, a synonym, or any hint "
    "at it. Each question names the kind of image ({modality}) and says what it is about "
    "({about}). One question per line, nothing else."
)  # fmt: skip


def template_problem(question: str, task: str, granularity: str, forbidden: Iterable[str]) -> str:
    """Return the rule that a template breaks; "" if it breaks none.

    Args:
        question: template with the modality as placeholder.
        task: task of its cell.
        granularity: granularity of its cell.
        forbidden: normalised labels, synonyms and parents that it must not contain.
    """
    text = f" {normalize_term(question.replace(PLACEHOLDER, ' '))} "
    if question.count(PLACEHOLDER) != 1:
        return "does not have exactly one <modality>"

    task_term = terms_by_name("task").get(normalize_term(task))

    # Compare word stems, so that inflected forms of the task's words count.
    stems = [
        word[:5]
        for word in (*normalize_term(find_task_noun(task)).split(), *(task_term.related if task_term else ()))
        if len(word) > 3
    ]
    if not any(word.startswith(stem) for word in text.split() for stem in stems):
        return "does not name the task"
    if not any(f" {word} " in text for word in GRANULARITY_WORDS[granularity]):
        return "does not name the granularity"

    hint = next(
        (word for word in sorted(forbidden) if word and re.search(rf" {re.escape(word)}(s|es)? ", text)),
        None,
    )
    if hint is not None:
        return f"contains the label {hint!r}"

    is_sentence = question.rstrip().endswith((".", "?")) and len(question) <= 400
    return "" if is_sentence else "is not a sentence"


def render_question(template: str, case: Candidate) -> str:
    """Return the question text of a case."""
    # `further_slices` does not include the item's own picture.
    prefix = SLICES_PREFIX.format(count=1 + len(case.item.further_slices)) if case.item.further_slices else ""
    return prefix + template.replace(PLACEHOLDER, case.modality) + (MULTIPLE_CHOICE_HINT if case.is_multiple else "")


def usable_templates(
    cells: dict[Cell, list[Candidate]],
    table: LabelTable,
    custom_file: Path | None,
    candidates: Path,
) -> tuple[dict[Cell, list[str]], dict[Cell, str]]:
    """Choose the templates of each cell that follow the rules (`template_problem`).

    Custom templates and reviewed candidates of a model (column keep: yes) take precedence over the
    built-in ones.

    Args:
        cells: the cases of each cell.
        table: canonical labels.
        custom_file: table of custom templates, or None.
        candidates: table of a model's candidates; may be missing.

    Returns:
        Templates per cell, and for each cell without one the reason.

    Raises:
        BadInput: custom templates break the rules; the message lists them.
    """
    custom_templates = _read_templates(custom_file) if custom_file is not None else {}
    for key, questions in (_read_templates(candidates) if candidates.is_file() else {}).items():
        custom_templates.setdefault(key, []).extend(questions)

    problems = Problems()
    templates_of_cell: dict[Cell, list[str]] = {}
    cells_without_template: dict[Cell, str] = {}
    for cell, cases in cells.items():
        _, task, granularity = cell
        forbidden = forbidden_words(cases, table)
        custom = custom_templates.get((task, granularity), [])
        builtin = [text.format(noun=find_task_noun(task)) for text in BUILTIN_TEMPLATES[granularity]]

        problems_of = {text: template_problem(text, task, granularity, forbidden) for text in custom or builtin}
        for question in filter(problems_of.get, custom):
            problems.add("questions", question, problems_of[question])
        if valid := [text for text, why in problems_of.items() if not why]:
            templates_of_cell[cell] = valid
        else:
            cells_without_template[cell] = next(iter(problems_of.values()))

    problems.check("Rewrite these questions, with <modality> in place of the kind of image.")
    return templates_of_cell, cells_without_template


def forbidden_words(cases: Iterable[Candidate], table: LabelTable) -> set[str]:
    """Return the words that no question of a cell may contain, given the cell's cases."""
    return {word for name in {name for case in cases for name in case.answers} for word in table.forbidden_words(name)}


def _read_templates(path: Path) -> dict[tuple[str, str], list[str]]:
    """Read (task, granularity) -> templates; with a column `keep`, only those that are kept."""
    table = read_dataframe(path)
    require_columns(table, path, ("task", "granularity", "question"), "It needs task, granularity, question.")
    templates: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in table.to_dict("records"):
        if row["granularity"] not in GRANULARITIES:
            raise BadInput(f"{path}: granularity {row['granularity']!r} is not one of {', '.join(GRANULARITIES)}.")
        if str(row.get("keep", "yes")).strip().casefold() in ("yes", "y", "1", "true", "x"):
            templates[str(row["task"]), str(row["granularity"])].append(" ".join(str(row["question"]).split()))
    return templates


def propose_templates(
    cells: dict[Cell, list[Candidate]],
    table: LabelTable,
    model: Writer,
    private: Path,
    asking: AskSettings,
) -> dict[str, int]:
    """Have a model write candidate templates for each cell, about ten sampled labels.

    Candidates that follow the rules are written to candidates.csv, where a person accepts them with
    `yes` in the column keep. Replies are journalled, so a second run repeats failed requests only.

    Args:
        cells: cases of each cell.
        table: canonical labels.
        model: language model.
        private: private folder of the work folder.
        asking: settings of the requests.

    Returns:
        The number of prompts, of candidates, of those that break the rules, and of those to review.
    """
    prompts: dict[str, str] = {}
    for cell, cases in cells.items():
        # Sample by hash, so that adding a label does not change the order of the others.
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

    entries = ask_once(
        model,
        prompts,
        asking,
        private / TEMPLATE_REPLIES_FILE,
        "proposing questions",
        TEMPLATE_SYSTEM_PROMPT,
    )

    # A person's decisions on candidates of earlier runs are kept.
    file = private / CANDIDATES_FILE
    earlier_rows = read_dataframe(file).to_dict("records") if file.is_file() else []
    earlier_decisions = {
        (row["task"], row["granularity"], row["question"]): str(row.get("keep", "")) for row in earlier_rows
    }
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
                rows[task, granularity, question] = earlier_decisions.get((task, granularity, question), "")

    frame = pd.DataFrame(
        [(*key, keep) for key, keep in rows.items()],
        columns=["task", "granularity", "question", "keep"],
    )
    replace_file(file, lambda path: frame.to_csv(path, index=False))
    return counts | {"to review": len(rows)}


def _parse_template(line: str, modality: str) -> str:
    """Convert a line of a reply into a template: no numbering, the modality as placeholder."""
    text = re.sub(r"^\s*(?:\d+[.)]|[-*])\s*", "", line).strip().strip('"')
    return re.sub(rf"(?<!\w){re.escape(modality)}(?!\w)", PLACEHOLDER, text, count=1, flags=re.IGNORECASE)


ALL_QUESTIONS = ("all", "all", "all")


@dataclass(frozen=True)
class Branch:
    """Result of answering a cell's questions, or all (`ALL_QUESTIONS`), without images."""

    cell: Cell
    blind_result: TextAlone
    flagged: bool
    """True if text gives answers away, with p-values adjusted for the number of branches (Holm)."""

    def __str__(self) -> str:
        name = "all questions" if self.cell == ALL_QUESTIONS else " > ".join(self.cell)
        return (
            f"{name}: {self.blind_result.correct:.0f} of {self.blind_result.questions} "
            f"correct without the image (chance: {self.blind_result.chance:.0f})"
        )

    def row(self) -> dict[str, Any]:
        """Return a row of report/blind_majority.csv."""
        return (
            dict(zip(("modality", "task", "granularity"), self.cell, strict=True))
            | vars(self.blind_result)
            | {"flagged": self.flagged}
        )


def blind_majority(written: list[WrittenQuestion]) -> list[Branch]:
    """Answer the whole set and each cell by the option that is most often correct.

    How often an option is correct is counted over questions about other images and patients.
    """
    questions_by_cell: dict[Cell, list[WrittenQuestion]] = defaultdict(list)
    for question in written:
        questions_by_cell[question.case.cell].append(question)

    results: dict[Cell, TextAlone] = {}
    all_options: list[list[str]] = []
    for cell, questions in sorted(questions_by_cell.items()):
        options, right = zip(*map(_single_choice, questions), strict=True)
        # Cross-validated; a patient or image is in one fold only.
        results[cell] = measure_text_alone(options, right, [question.case.shared_ids for question in questions])
        all_options += options
    results = {
        ALL_QUESTIONS: compare_with_chance(sum(result.correct for result in results.values()), all_options)
    } | results

    adjusted = holm_adjust(np.array([question.p for question in results.values()]))
    return [
        Branch(cell, question, bool(p <= SIGNIFICANCE_LEVEL) and question.is_large)
        for (cell, question), p in zip(results.items(), adjusted, strict=True)
    ]


def _single_choice(question: WrittenQuestion) -> tuple[list[str], int]:
    """Return a question as (options, index of the correct one).

    If several options are correct, one of them is kept; a hash of the case decides which.
    """
    options, right = question.choice.options, question.choice.right

    kept_answer = random.Random(f"text alone {question.case.order}").choice(right)
    option_indices = [index for index in range(len(options)) if index == kept_answer or index not in right]
    return [options[index] for index in option_indices], option_indices.index(kept_answer)


def check_text_alone(branches: list[Branch], written: list[WrittenQuestion]) -> None:
    """Raise BadInput if text gives answers away; the message names the branches that do."""
    flagged = [branch for branch in branches if branch.flagged]
    if not flagged:
        return

    cells = {branch.cell for branch in flagged}
    flagged_questions = [question for question in written if cells & {ALL_QUESTIONS, question.case.cell}]
    [(most_common, answer_count)] = Counter(
        name for question in flagged_questions for name in question.case.answers
    ).most_common(1)
    raise BadInput(
        f"text alone gives answers away ({'; '.join(str(branch) for branch in flagged[:3])}; "
        f"most frequent answer: {most_common!r}, {answer_count} times). "
        "Reduce `per_answer`, add cases of other labels, or remove a label; "
        "--accept-text-alone builds it anyway."
    )
