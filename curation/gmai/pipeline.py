"""All stages in the paper's order. Reading is journalled and costs once; everything after it is drawn anew from the seed in seconds, so
that a killed run goes on and a changed table takes effect, while questions that were drawn before stand as long as they are right.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from curation.gmai import question_templates, validation
from curation.gmai.benchmark_files import write_outputs
from curation.gmai.candidate_cases import Candidate, Cell, drop_near_duplicates, make_cases
from curation.gmai.items import Item, read_items
from curation.gmai.label_table import LABEL_COLUMNS, TAGS_FILE, LabelTable, Tags, merge_tags, read_label_table
from curation.gmai.overlay import exclude_burned_in_text, write_contact_sheets
from curation.gmai.selecting import (
    EarlierQuestions,
    OptionDrawer,
    OptionPools,
    OptionSet,
    WrittenQuestion,
    read_earlier_questions,
    select_cases,
    split_cases,
    write_questions_file,
)
from curation.gmai.sources import Sources, read_sources
from curation.images.file_names import name_list_path, write_private_csv
from curation.readers.consistency import count_skip_reasons, refuse_contradictions
from curation.review.page import read_decisions
from curation.writing.asking import AskSettings, Writer
from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.contents.about import read_about
from dataset_builders.contents.pseudonyms import read_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, remove_temp_files, replace_file
from dataset_builders.terms import parse_image_context

PRIVATE_FOLDER = "private"


@dataclass(frozen=True)
class PipelineResult:
    """A finished run."""

    out: Path
    written: list[WrittenQuestion]
    funnel: dict[str, Any]
    notes: list[str]


def run_pipeline(
    path: Path,
    out: Path,
    model: Writer | None = None,
    asking: AskSettings | None = None,
    search_text: bool = True,
    accept_text_alone: bool = False,
    skip_contradictions: bool = False,
) -> PipelineResult:
    """From sources.yaml to a benchmark in `out`. Raises BadInput if nothing can be made, a dataset contradicts itself or the text alone
    gives answers away (unless that is accepted); then no output folder is written or changed.

    model: proposes questions for a person to review (`private/candidates.csv`); without one, templates are used.
    search_text: look for burned-in text in the pictures of questions.
    skip_contradictions: leave out the entries that contradict their dataset, and use its others.
    """
    sources = read_sources(path)
    about = _about_fields(path, sources)
    _check_name(out)
    table = read_label_table(sources.labels)
    private = out / PRIVATE_FOLDER
    with lock_folder(private, "gmai"):
        private.chmod(0o700)  # it holds pictures that no person has looked at yet
        remove_temp_files(private)
        items, skips, read = read_items(sources, private)
        named = name_list_path(out / "dataset")
        write_private_csv(
            named, ((skip.dataset, skip.what, skip.reason) for skip in skips), ("dataset", "file", "reason")
        )
        if not skip_contradictions:
            refuse_contradictions(skips)
        if not items:
            first = "; ".join(
                f"{what} ({count})" for what, count in Counter(skip.reason for skip in skips).most_common(5)
            )
            why = f"What was skipped: {first}" if first else "They are empty"
            raise BadInput(f"no dataset gives a single target. {why}.")
        write_contact_sheets(items, private, sources)
        notes = [f"{name}: {count} x {reason}" for (name, reason), count in sorted(count_skip_reasons(skips).items())]
        notes += [f"which files these are: {named}"] if skips else []
        tagged = merge_tags(read_decisions(private / TAGS_FILE), table, sources.tasks, sources.departments)
        cases, left_out, unmapped = make_cases(items, sources, table, tagged)
        to_fill_in = [["", label, *[""] * 7, why, count] for (why, label), count in sorted(unmapped.items())]
        _write_csv(private / "unmapped.csv", (*LABEL_COLUMNS, "why", "count"), to_fill_in)
        _write_csv(private / "labels.csv", (*LABEL_COLUMNS, "count"), _label_rows(items, sources, table, tagged))
        if unmapped:
            names = "; ".join(f"{label!r} {why}" for why, label in list(unmapped)[:5])
            notes.append(f"{len(unmapped)} labels were left out ({names}): {private / 'unmapped.csv'}")

        said = read_decisions(private / validation.VALIDATION_LOG)
        possible, objected = len(cases), validation.rejected_cases(said)
        cases = [case for case in cases if case.case not in objected]
        pools = OptionPools(cases, table)
        usable = [case for case in cases if len(case.answers) < sources.options[1] and pools.of(case)]
        unique, duplicates = drop_near_duplicates(usable, sources.near_duplicate)
        chosen, limits, text = exclude_burned_in_text(
            unique, partial(select_cases, sources=sources), private, sources, search_text
        )
        if text and text["undecided"]:
            notes.append(
                f"{text['undecided']} pictures may hold burned-in text and are in no question: decide with medprobe curate texts {out}"
            )
        cells: dict[Cell, list[Candidate]] = defaultdict(list)
        for case in chosen:
            cells[case.cell].append(case)
        proposed = (
            question_templates.propose_templates(cells, table, model, private, asking or AskSettings())
            if model is not None
            else None
        )
        words, without = question_templates.usable_templates(
            cells, table, sources.questions, private / question_templates.CANDIDATES_FILE
        )
        notes += [f"{' > '.join(cell)}: no question, since every template {why}" for cell, why in without.items()]
        kept = read_earlier_questions(private, sources)
        written, unwritten = _write_questions(chosen, words, sources, pools, kept)
        not_asked = (
            Counter({"no wrong option may stand beside the answer": len(cases) - len(usable)})
            + duplicates
            + limits
            + unwritten
        )
        if not written:
            why = ", ".join(f"{count} x {what}" for what, count in (left_out + not_asked).most_common(5))
            raise BadInput(
                f"no question can be made ({why or 'no target'}). Each task, modality and granularity needs at least two labels that "
                "exclude one another, and a template."
            )

        branches = question_templates.blind_majority(written)
        if not accept_text_alone:
            question_templates.check_text_alone(branches, written)
        notes += [f"the text alone gives answers away, {each}" for each in branches if each.flagged]
        funnel: dict[str, Any] = {
            "read": read,
            "skipped": [{"dataset": name, "reason": reason, "count": n} for (name, reason), n in sorted(count_skip_reasons(skips).items())],
            "items": len(items),
            "left_out": dict(left_out),
            "tags": {"taggers": tagged.taggers, "labels": tagged.labels, "alpha": tagged.agreement},
            "possible_questions": possible,
            "validation": validation.validation_summary(said, {each.case.case for each in written}),
            "not_asked": dict(not_asked),
            "burned_in_text": text,
            "model_questions": proposed,
            "flagged_branches": sum(each.flagged for each in branches),
            "questions": len(written),
            "splits": dict(Counter(each.split for each in written)),
            "patients": len({each.case.item.patient for each in written}),
            "ethics": {dataset.name: dataset.ethics for dataset in sources.datasets},
            "overlay": sources.overlay.model_dump(),
        }  # fmt: skip
        write_outputs(out, written, private, sources, table, about, branches, funnel)
        write_questions_file(private, written, kept, sources, read_withdrawn_ids(out / "dataset"))
    return PipelineResult(out, written, funnel, notes)


def _about_fields(path: Path, sources: Sources) -> dict[str, str]:
    """Statements of about.yaml (beside sources.yaml) on the people in the sets; without an approval there, the sets' own is used."""
    approvals = "; ".join(f"{dataset.name}: {dataset.ethics}" for dataset in sources.datasets if dataset.ethics)
    return ({"approval": approvals} if approvals else {}) | read_about(path.parent, {})


def _check_name(out: Path) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", out.name) or ".." in out.name:
        raise BadInput(f"--out {out}: the folder's name is the benchmark's: letters, digits, '-', '_' and '.'.")
    if out.name in BENCHMARKS or "mmbench" in out.name.lower():
        raise BadInput(
            f"--out {out}: {out.name!r} is taken: it is a published benchmark's name, or holds 'mmbench', for which VLMEvalKit "
            "turns the options around. Choose another."
        )


def _write_questions(
    chosen: list[Candidate], words: dict[Cell, list[str]], sources: Sources, pools: OptionPools, kept: EarlierQuestions
) -> tuple[list[WrittenQuestion], Counter[str]]:
    """The questions of the chosen cases; those of an earlier run keep their words, options, number and split."""
    splits = split_cases(chosen, sources, kept.splits)
    frequency = Counter((case.cell, name) for case in chosen for name in case.answers)
    drawer = OptionDrawer(sources, pools, frequency)
    unwritten: Counter[str] = Counter()
    made: list[tuple[Candidate, str, OptionSet]] = []
    fresh: list[Candidate] = []
    for case in chosen:
        before = kept.drawn.get(case.case)
        if case.cell not in words:
            unwritten["every template breaks a rule"] += 1
            continue
        known = {question_templates.render_question(template, case) for template in words[case.cell]}
        if before and before[0] in known and drawer.still_stands(case, before[1]):
            drawer.take(case, splits[case.case], len(before[1].options), before[1].right)
            made.append((case, *before))
        else:
            fresh.append(case)
    for case in fresh:
        choice = drawer.draw(case, splits[case.case])
        if choice is None:
            unwritten["too few options"] += 1
            continue
        template = random.Random(f"question {case.order}").choice(words[case.cell])
        made.append((case, question_templates.render_question(template, case), choice))
    indices = kept.numbered([case for case, _, _ in made], splits)
    written = [
        WrittenQuestion(case, text, choice, splits[case.case], indices[case.case]) for case, text, choice in made
    ]
    return sorted(written, key=lambda each: each.case.order), unwritten


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    replace_file(path, lambda partial: pd.DataFrame(list(rows), columns=list(columns)).to_csv(partial, index=False))


def _label_rows(items: list[Item], sources: Sources, table: LabelTable, tagged: Tags) -> Iterator[list[Any]]:
    """How every raw label was understood, in the columns of labels.csv."""
    regions = {dataset.name: dataset.region for dataset in sources.datasets}
    named = Counter(
        (item.label, table.name_of(item.label, parse_image_context(regions[item.dataset], item.modality)) or "")
        for item in items
    )
    for (raw, name), count in sorted(named.items()):
        if name:
            label, own = table.labels[name], tagged.values.get(name, {})
            listed = (label.synonyms, label.parents, label.regions, label.modalities)
            synonyms, parents, region, modalities = ("; ".join(sorted(each)) for each in listed)
            task, department = own.get("task", label.task), own.get("department", label.department)
            yield [name, raw, synonyms, parents, label.mesh, task, department, region, modalities, count]
