"""Run all stages in the paper's order, and serve the pages on which people review the result.

Reading is journalled, so each file is read only once, and a killed run resumes. All later stages
take seconds and are repeated in every run, so a changed table takes effect. Questions of earlier
runs are kept as long as they are still correct.

On the pages, reviewers mark what is wrong with each question, and taggers set the task and
department of each label; the next run uses both.

See also: the page (`dataset_builders/browser_page/page.py`), how tags are used (`label_table.py`).
"""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from fastapi import FastAPI

from curation.gmai import question_templates
from curation.gmai.benchmark_files import (
    blacked_out_boxes,
    exclude_burned_in_text,
    render_png,
    write_contact_sheets,
    write_outputs,
)
from curation.gmai.candidate_cases import Candidate, Cell, drop_near_duplicates, make_cases
from curation.gmai.label_table import (
    LABEL_COLUMNS,
    TAG_SUBJECTS,
    TAGGERS_PER_LABEL,
    TAGS_FILE,
    LabelTable,
    Tags,
    assign_labels,
    merge_tags,
    read_label_table,
)
from curation.gmai.selecting import (
    QUESTIONS_FILE,
    EarlierQuestions,
    OptionDrawer,
    OptionPools,
    OptionSet,
    WrittenQuestion,
    read_earlier_questions,
    split_cases,
    write_questions_file,
)
from curation.gmai.sources import PRIVATE_FOLDER, Item, Overlay, Sources, read_items, read_sources
from curation.images.image_table import read_dataframe
from curation.images.privacy import name_list_path, write_private_csv
from curation.readers.pictures import count_skip_reasons, refuse_contradictions
from curation.review.review import gwet_ac1
from curation.writing.asking import AskSettings, Writer
from dataset_builders.benchmarks import FORMATS
from dataset_builders.browser_page.page import Field, ItemView, ReviewTask, build_page, read_decisions, record_decision
from dataset_builders.contents.card import read_about
from dataset_builders.contents.pseudonyms import read_withdrawn_ids
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, remove_temp_files, replace_file
from dataset_builders.terms import parse_image_context


@dataclass(frozen=True)
class PipelineResult:
    """A finished run."""

    written: list[WrittenQuestion]
    funnel: dict[str, Any]
    notes: list[str]


def run_pipeline(
    path: Path,
    out: Path,
    model: Writer | None = None,
    request_settings: AskSettings | None = None,
    search_text: bool = True,
    accept_text_alone: bool = False,
    skip_contradictions: bool = False,
) -> PipelineResult:
    """Build a benchmark in `out` from sources.yaml.

    If an error is raised, no output folder has been written or changed.

    Args:
        path: sources.yaml.
        out: work folder; its name is the benchmark's.
        model: proposes question templates for a person to review (`private/candidates.csv`); None:
            built-in templates.
        request_settings: settings of the requests to the model.
        search_text: search the pictures of questions for burned-in text.
        accept_text_alone: build the benchmark even if text alone gives answers away.
        skip_contradictions: omit the entries that contradict their dataset, and use the others.

    Raises:
        BadInput: there are no questions, a dataset contradicts itself, or text alone gives answers
            away.
    """
    sources = read_sources(path)
    about = _about_fields(path, sources)
    _check_name(out)
    table = read_label_table(sources.labels)

    private = out / PRIVATE_FOLDER
    with lock_folder(private, "gmai"):
        private.chmod(0o700)  # its pictures have not been reviewed
        remove_temp_files(private)

        items, skips, read_counts = read_items(sources, private)
        private_list = name_list_path(out / "dataset")
        write_private_csv(
            private_list,
            ((skip.dataset, skip.subject, skip.reason) for skip in skips),
            ("dataset", "file", "reason"),
        )

        # Refuse only after the private list is written, so that the curator can look up the files
        # in question.
        if not skip_contradictions:
            refuse_contradictions(skips)
        if not items:
            common_reasons = "; ".join(
                f"{reason} ({count})" for reason, count in Counter(skip.reason for skip in skips).most_common(5)
            )
            reason = f"Skipped: {common_reasons}" if common_reasons else "They are empty"
            raise BadInput(f"no dataset has a single target. {reason}.")

        write_contact_sheets(items, private, sources)
        notes = [f"{name}: {count} x {reason}" for (name, reason), count in sorted(count_skip_reasons(skips).items())]
        notes += [f"names of the skipped files: {private_list}"] if skips else []

        tags, tag_counts = merge_tags(read_decisions(private / TAGS_FILE), table, sources.tasks, sources.departments)
        cases, left_out, unmapped = make_cases(items, sources, table, tags)

        unmapped_rows = [
            {"raw": label, "why": reason, "count": count} for (reason, label), count in sorted(unmapped.items())
        ]
        _write_csv(private / "unmapped.csv", (*LABEL_COLUMNS, "why", "count"), unmapped_rows)
        label_rows = _label_rows(items, sources, table, tags)
        _write_csv(private / "labels.csv", (*LABEL_COLUMNS, "count"), label_rows)
        if unmapped:
            names = "; ".join(f"{label!r} {reason}" for reason, label in list(unmapped)[:5])
            notes.append(f"{len(unmapped)} labels were left out ({names}): {private / 'unmapped.csv'}")

        verdicts = read_decisions(private / VALIDATION_LOG)
        possible_count, rejected = len(cases), rejected_cases(verdicts)
        cases = [case for case in cases if case.case not in rejected]

        # Drop unusable cases first: otherwise one of them could displace its usable duplicate.
        pools = OptionPools(cases, table)
        usable = [case for case in cases if len(case.answers) < sources.options[1] and pools.wrong_options(case)]
        unique, duplicates = drop_near_duplicates(usable, sources.near_duplicate)
        chosen, limits, text_counts = exclude_burned_in_text(unique, private, sources, search_text)
        if text_counts and text_counts["undecided"]:
            notes.append(
                f"{text_counts['undecided']} pictures may contain burned-in text and are not used: "
                f"decide with medprobe curate texts {out}"
            )

        cells: dict[Cell, list[Candidate]] = defaultdict(list)
        for case in chosen:
            cells[case.cell].append(case)
        proposed = (
            question_templates.propose_templates(cells, table, model, private, request_settings or AskSettings())
            if model is not None
            else None
        )
        templates, cells_without_template = question_templates.usable_templates(
            cells, table, sources.questions, private / question_templates.CANDIDATES_FILE
        )
        notes += [
            f"{' > '.join(cell)}: no questions, since every template {reason}"
            for cell, reason in cells_without_template.items()
        ]

        earlier = read_earlier_questions(private, sources)
        written, unwritten = _write_questions(chosen, templates, sources, pools, earlier)

        not_asked = (
            Counter({"no label can be a wrong option": len(cases) - len(usable)}) + duplicates + limits + unwritten
        )
        if not written:
            reason = ", ".join(f"{count} x {reason}" for reason, count in (left_out + not_asked).most_common(5))
            raise BadInput(
                f"no questions ({reason or 'no target'}). Each task, modality and granularity "
                "needs "
                "a template and at least two labels that exclude each other."
            )

        branches = question_templates.blind_majority(written)
        if not accept_text_alone:
            question_templates.check_text_alone(branches, written)
        notes += [f"text alone gives answers away, {branch}" for branch in branches if branch.flagged]

        funnel: dict[str, Any] = {
            "read": read_counts,
            "skipped": [
                {"dataset": name, "reason": reason, "count": count}
                for (name, reason), count in sorted(count_skip_reasons(skips).items())
            ],
            "items": len(items),
            "left_out": dict(left_out),
            "tags": tag_counts,
            "possible_questions": possible_count,
            "validation": validation_summary(verdicts, {question.case.case for question in written}),
            "not_asked": dict(not_asked),
            "burned_in_text": text_counts,
            "model_questions": proposed,
            "flagged_branches": sum(branch.flagged for branch in branches),
            "questions": len(written),
            "splits": dict(Counter(question.split for question in written)),
            "patients": len({question.case.item.patient for question in written}),
            "ethics": {dataset.name: dataset.ethics for dataset in sources.datasets},
            "overlay": sources.overlay.model_dump(),
        }  # fmt: skip

        # The questions file is written last, since it makes this run's questions permanent.
        write_outputs(out, written, private, sources, table, about, branches, funnel)
        write_questions_file(private, written, earlier, sources, read_withdrawn_ids(out / "dataset"))
    return PipelineResult(written, funnel, notes)


def _about_fields(path: Path, sources: Sources) -> dict[str, str]:
    """Return the fields of about.yaml, which is beside sources.yaml.

    If it states no approval, that of the datasets is used.
    """
    approvals = "; ".join(f"{dataset.name}: {dataset.ethics}" for dataset in sources.datasets if dataset.ethics)
    return ({"approval": approvals} if approvals else {}) | read_about(path.parent, {})


def _check_name(out: Path) -> None:
    """Raise BadInput if the name of the work folder is not a valid name for a benchmark."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", out.name) or ".." in out.name:
        raise BadInput(
            f"--out {out}: the folder's name is the benchmark's name: use letters, digits, '-', '_' and '.'."
        )
    if out.name in FORMATS or "mmbench" in out.name.lower():
        raise BadInput(
            f"--out {out}: {out.name!r} is reserved: it is the name of a published benchmark, "
            "or contains 'mmbench', for which VLMEvalKit rotates the options. Choose another."
        )


def _write_questions(
    chosen: list[Candidate],
    templates: dict[Cell, list[str]],
    sources: Sources,
    pools: OptionPools,
    earlier: EarlierQuestions,
) -> tuple[list[WrittenQuestion], Counter[str]]:
    """Write the text and options of the chosen cases.

    Questions of an earlier run keep their text, options, number and split.

    Args:
        chosen: selected cases.
        templates: templates of each cell.
        sources: sources.yaml.
        pools: possible wrong options.
        earlier: questions of earlier runs.

    Returns:
        The questions, sorted by the cases' `order`, and the number of cases without one, by reason.
    """
    splits = split_cases(chosen, sources, earlier.splits)
    frequency = Counter((case.cell, name) for case in chosen for name in case.answers)
    drawer = OptionDrawer(sources, pools, frequency)
    askable = [case for case in chosen if case.cell in templates]
    unwritten_counts = Counter({"every template breaks a rule": len(chosen) - len(askable)})
    drafts: list[tuple[Candidate, str, OptionSet]] = []
    new_cases: list[Candidate] = []
    # Count earlier questions first, so that the correct letters of new ones balance theirs.
    for case in askable:
        question, choice = earlier.questions.get(case.case, ("", None))
        possible_texts = {question_templates.render_question(template, case) for template in templates[case.cell]}
        if choice and question in possible_texts and drawer.is_still_valid(case, choice):
            drawer.count_positions(case, splits[case.case], len(choice.options), choice.right)
            drafts.append((case, question, choice))
        else:
            new_cases.append(case)

    for case in new_cases:
        choice = drawer.draw(case, splits[case.case])
        if choice is None:
            unwritten_counts["too few options"] += 1
        else:
            template = random.Random(f"question {case.order}").choice(templates[case.cell])
            drafts.append((case, question_templates.render_question(template, case), choice))

    indices = earlier.number_cases([case for case, _, _ in drafts], splits)
    written = [
        WrittenQuestion(case, text, choice, splits[case.case], indices[case.case]) for case, text, choice in drafts
    ]
    return sorted(written, key=lambda question: question.case.order), unwritten_counts


def _write_csv(path: Path, columns: Sequence[str], rows: list[dict[str, Any]]) -> None:
    table = pd.DataFrame(rows, columns=list(columns))
    replace_file(path, lambda partial: table.to_csv(partial, index=False))


def _label_rows(items: list[Item], sources: Sources, table: LabelTable, tags: Tags) -> list[dict[str, Any]]:
    """Return one row per mapped raw label, in the columns of labels.csv."""
    regions = {dataset.name: dataset.region for dataset in sources.datasets}
    name_counts = Counter(
        (item.label, table.canonical_name(item.label, parse_image_context(regions[item.dataset], item.modality)))
        for item in items
    )
    rows = []
    for raw, name in sorted((raw, name) for raw, name in name_counts if name is not None):
        label = table.labels[name]
        rows.append(
            {
                "name": name,
                "raw": raw,
                "synonyms": "; ".join(sorted(label.synonyms)),
                "parents": "; ".join(sorted(label.parents)),
                "mesh": label.mesh,
                "task": label.task,
                "department": label.department,
                "region": "; ".join(sorted(label.regions)),
                "modalities": "; ".join(sorted(label.modalities)),
                **tags.get(name, {}),
                "count": name_counts[raw, name],
            }
        )
    return rows


# Verdicts of reviewers

VALIDATION_LOG, FAULTS_FIELD = "validation.jsonl", "faults"
FAULTS = {
    "wrong": "the marked answer is wrong",
    "unclear": "the target is unclear",
    "poor": "the image is poor",
    "unseen": "answerable without the image",
}

Verdicts = dict[tuple[str, str, str], Any]
"""(case, `FAULTS_FIELD`, reviewer) -> faults (an empty list: the question is fine). A reviewer's
last verdict on a case counts.
"""


def rejected_cases(verdicts: Verdicts) -> dict[str, str]:
    """Return case -> first fault, for cases that any reviewer rejected."""
    return {case: faults[0] for (case, _, _), faults in sorted(verdicts.items(), reverse=True) if faults}


def validation_summary(verdicts: Verdicts, asked_cases: Set[str]) -> dict[str, Any]:
    """Summarise the reviewers' verdicts.

    Args:
        verdicts: faults per case and reviewer.
        asked_cases: cases that are questions of the current run.

    Returns:
        Counts, and the agreement on keep or drop (Gwet's AC1; None if no case has two reviewers).
    """
    cases = {case for case, _, _ in verdicts}
    is_fine = pd.Series({(case, reviewer): not faults for (case, _, reviewer), faults in verdicts.items()})
    return {
        "validated": len(cases),
        "validated_questions": len(asked_cases & cases),
        "reviewers": len({reviewer for _, _, reviewer in verdicts}),
        "dropped": dict(Counter(rejected_cases(verdicts).values())),
        "agreement_ac1": gwet_ac1(is_fine.unstack().to_numpy(object)) if verdicts else None,
    }


# The pages


def _read_page_data(private: Path) -> dict[str, Any]:
    """Return the last run's questions file. Raises BadInput if there is none."""
    if not (private / QUESTIONS_FILE).is_file():
        raise BadInput(
            f"{private.parent}: has no questions. Make them with `medprobe curate gmai SOURCES --out {private.parent}`."
        )
    document: dict[str, Any] = json.loads((private / QUESTIONS_FILE).read_text(encoding="utf-8"))
    return document


def build_validation(out: Path) -> FastAPI:
    """Build the page on which reviewers validate the questions of a run."""
    private = out / PRIVATE_FOLDER
    document = _read_page_data(private)
    cases = {entry["case"]: entry for entry in document["cases"]}
    overlay, text_boxes = Overlay(**document["overlay"]), blacked_out_boxes(private)

    # The page is served by a single process, so the verdicts are read once and updated in `save`.
    verdicts: Verdicts = read_decisions(private / VALIDATION_LOG)

    def show(reviewer: str, case: str) -> ItemView:
        entry = cases[case]
        return ItemView(
            question=entry["question"],
            values={FAULTS_FIELD: verdicts.get((case, FAULTS_FIELD, reviewer), [])},
            heading=" › ".join(entry[name] for name in ("department", "modality", "task", "granularity")),
            options=[(text, at in entry["right"]) for at, text in enumerate(entry["options"])],
            pictures=[""] * len(entry["pictures"]),
        )

    def save(reviewer: str, case: str, field: str, value: Any, seen: Any) -> str:
        if unknown := [fault for fault in value if fault not in FAULTS]:
            raise BadInput(f"{unknown[0]!r} is not a known fault; choose from {', '.join(FAULTS)}.")
        record_decision(private / VALIDATION_LOG, reviewer, case, FAULTS_FIELD, value)
        verdicts[case, FAULTS_FIELD, reviewer] = value
        return "saved"

    def picture(case: str, number: int) -> tuple[str, bytes]:
        entry = cases[case]
        picture_hash, mask = entry["pictures"][number]
        png = render_png(private, picture_hash, mask, entry["granularity"], entry["box"], overlay, text_boxes)
        return "image/png", png

    faults = Field(
        FAULTS_FIELD, "What is wrong?", "checks", list(FAULTS.items()), "1234",
        commit="save and continue (nothing ticked: fine)",
    )  # fmt: skip
    return build_page(
        ReviewTask(
            title="Validation",
            fields=[faults],
            items=lambda _: list(cases),
            show=show,
            save=save,
            is_done=lambda reviewer, case: (case, FAULTS_FIELD, reviewer) in verdicts,
            picture=picture,
        )
    )


def build_tagging(out: Path, taggers: list[str]) -> FastAPI:
    """Build the page on which taggers set the task and department of labels.

    Args:
        out: work folder.
        taggers: names of the taggers; each label is assigned to three of them.

    Raises:
        BadInput: fewer than three taggers, or no questions.
    """
    private = out / PRIVATE_FOLDER
    document = _read_page_data(private)

    if len(taggers) < TAGGERS_PER_LABEL:
        raise BadInput(
            f"--taggers: got {len(taggers)} names; each label is tagged by three people. Give at least three names."
        )

    raw = {str(row["name"]): str(row["raw"]) for row in read_dataframe(private / "labels.csv").to_dict("records")}
    labels_of_tagger = assign_labels(list(raw), taggers, document["seed"])

    values = {subject: document[f"{subject}s"] for subject in TAG_SUBJECTS}

    def tagger_votes(tagger: str, label: str) -> dict[str, str]:
        votes = read_decisions(private / TAGS_FILE)
        return {subject: votes.get((label, subject, tagger), "") for subject in TAG_SUBJECTS}

    def save(tagger: str, label: str, subject: str, value: Any, seen: Any) -> str:
        if value not in values[subject]:
            raise BadInput(f"{value!r} is not a valid {subject}.")
        record_decision(private / TAGS_FILE, tagger, label, subject, value)
        return f"saved {subject}: {value}"

    return build_page(
        ReviewTask(
            title="Tags",
            fields=[
                Field(name, name.title(), "choice", [(choice, choice) for choice in values[name]]) for name in values
            ],
            items=lambda tagger: labels_of_tagger.get(tagger, []),
            show=lambda tagger, label: ItemView(
                label, tagger_votes(tagger, label), heading=f"in the sets: {raw[label]}"
            ),
            save=save,
            is_done=lambda tagger, label: all(tagger_votes(tagger, label).values()),
            names=taggers,
        )
    )
