"""Write a dataset repository: Parquet files, card, manifest, and the private answers beside it.

See also: the Parquet layout (`parquet.py`), the card's text (`card.py`), opening a repository
(`hub/repository.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataset_builders.case_groups import find_split_overlaps, format_overlaps
from dataset_builders.contents.card import (
    LICENSE_FILE,
    TASK_COLUMNS,
    Description,
    render_card,
    render_eval_yaml,
    render_licence_file,
    select_hub_tasks,
)
from dataset_builders.contents.data_files import (
    CARD_FILE,
    folder_config_entries,
    update_card_configs,
)
from dataset_builders.errors import clip
from dataset_builders.files import write_json
from dataset_builders.fingerprints import fingerprint_cases
from dataset_builders.images.picture import find_white_levels
from dataset_builders.parquet import (
    ConfigSizes,
    ImageFacts,
    arrow_schema,
    iter_image_files,
    used_columns,
    write_cases,
    write_split_table,
)
from dataset_builders.schema import (
    DATASET_SCHEMA_VERSION,
    HIDDEN_ANSWER_COLUMNS,
    TREE_COLUMNS,
    Case,
    ColumnType,
    CountComparison,
    SourceContent,
    case_columns,
    text_columns,
)


def write_repository(folder: Path, description: Description, content: SourceContent) -> tuple[str, ...]:
    """Write all files of a repository.

    Args:
        folder: an empty folder.
        description: what the repository says about itself.
        content: what the reader returned.

    Returns:
        Lines for the user: sizes, counts and notes.

    Raises:
        BadInput: names every image that is invalid, too large or truncated.
    """
    facts = ImageFacts(
        {} if description.text_only else find_white_levels(iter_image_files(content.all_cases(include_extra=True)))
    )
    question_kinds = used_columns(description.family, content)
    columns = {
        "questions": question_kinds,
        "cases": case_columns(question_kinds),
        "questions_text": text_columns(question_kinds),
    }
    if description.text_only:
        columns = {"questions_text": text_columns(question_kinds)}
    written: dict[str, ConfigSizes] = {}

    def write(configs: dict[str, dict[str, ColumnType]], splits: dict[str, list[Case]]) -> None:
        for split, cases in splits.items():
            write_cases(folder, configs, split, cases, facts, written)

    write(dict(columns), content.cases)
    for config, splits in {} if description.text_only else content.extra_configs.items():
        columns[config] = question_kinds
        write({config: question_kinds}, splits)

    if content.tree_rows is not None:
        columns["lexical_tree"] = TREE_COLUMNS
        rows = [dict(zip(TREE_COLUMNS, row, strict=True)) for row in content.tree_rows]
        table = pa.Table.from_pylist(rows, arrow_schema(TREE_COLUMNS))
        written["lexical_tree"] = ConfigSizes()
        write_split_table(folder / "lexical_tree", "train", TREE_COLUMNS, table, written["lexical_tree"])

    # inspect-ai's reader takes one image per question, so such sets have no tasks.
    several = "more_images" in question_kinds
    tasks = select_hub_tasks(description.family, content) if description.has_tasks and not several else []
    if description.has_tasks and several:
        content.notes.append("no eval.yaml was written: inspect-ai's own Hub reader takes only one image per question.")
    for task, cases in tasks:
        columns[task.config] = text_columns(TASK_COLUMNS) if description.text_only else TASK_COLUMNS
        write({task.config: columns[task.config]}, {task.split: cases})

    facts.check()
    content.notes += facts.notes()
    if description.origin == "custom":
        content.notes += _describe_shared_pictures(content.cases, facts.pixels)
    if tasks:
        text = render_eval_yaml(description, [task for task, _ in tasks])
        (folder / "eval.yaml").write_text(text, encoding="utf-8")

    manifest = _build_manifest(description, content, facts)
    write_json(folder / "manifest.json", manifest)
    card = render_card(description, content, columns, written, folder_config_entries(folder))
    (folder / CARD_FILE).write_text(card, encoding="utf-8")
    if terms := render_licence_file(description, content):
        (folder / LICENSE_FILE).write_text(terms, encoding="utf-8")
    return (
        *(
            f"{config}: {', '.join(f'{split} {rows}' for split, rows in done.rows.items())}"
            for config, done in written.items()
        ),
        *([f"partial: {description.partial}"] if description.partial else []),
        *format_counts(content.counts, description.origin),
        *(f"note: {note}" for note in content.notes),
    )


def _describe_shared_pictures(splits: dict[str, list[Case]], pixels: dict[str, str]) -> list[str]:
    """Note pictures that occur in several splits, compared by pixels rather than name or file."""
    # Compare decoded pixels: copies of a picture may differ in name, format and metadata.
    digests = {
        split: [pixels.get(image.image_id, "") for case in cases for image in case.images]
        for split, cases in splits.items()
    }
    shared = find_split_overlaps(digests)
    if not shared:
        return []
    names = [image for image, digest in pixels.items() if digest in shared]
    return [
        f"pictures in more than one split: {format_overlaps(shared)}, such as {clip(', '.join(names[:4]))}. "
        "A model that is trained on one split has seen them when it is tested on the other."
    ]


def write_hidden_answers(folder: Path, name: str, content: SourceContent) -> None:
    """Write the private answers as a dataset repository of their own (question_id, answer).

    Args:
        folder: an empty folder.
        name: name of the dataset.
        content: what the reader returned.
    """
    questions = [question.question_id for case in content.all_cases() for question in case.questions]
    hidden = content.hidden_answers
    rows = [{"question_id": name, "answer": hidden[name]} for name in questions if name in hidden]
    table = pa.Table.from_pylist(rows, arrow_schema(HIDDEN_ANSWER_COLUMNS))
    write_split_table(folder / "answers", "test", HIDDEN_ANSWER_COLUMNS, table, ConfigSizes())
    write_json(
        folder / "manifest.json",
        {"schema_version": DATASET_SCHEMA_VERSION, "answers_of": name, "questions": len(rows)},
    )
    text = (
        f"# Hidden test answers of {name}\n\nPrivate: used only for scoring. Publishing this folder spoils the test.\n"
    )
    (folder / CARD_FILE).write_text(update_card_configs(text, folder_config_entries(folder), folder / CARD_FILE))


def format_counts(counts: Sequence[CountComparison], origin: str) -> list[str]:
    """Format the count report.

    Args:
        counts: counts in the source and in the paper.
        origin: origin of the set; phantoms are not compared with the paper.

    Returns:
        A line per count.
    """
    lines = []
    for count in counts:
        if origin == "phantom":
            lines += [f"{count.quantity}: {count.count:,}"] if count.count else []
            continue
        differs = count.paper is not None and count.paper != count.count
        paper_note = f" (paper: {count.paper:,})" if count.paper is not None else ""
        mark = " DIFFERS" if differs and origin == "official" else ""
        note = f", {count.note}" if count.note and (differs or count.paper is None) else ""
        lines.append(f"{count.quantity}: {count.count:,}{paper_note}{mark}{note}")

    return lines


def _build_manifest(description: Description, content: SourceContent, facts: ImageFacts) -> dict[str, Any]:
    def splits(cases_by_split: dict[str, list[Case]]) -> dict[str, Any]:
        return {
            split: {
                "questions": sum(len(case.questions) for case in cases),
                "cases": len(cases),
                "fingerprint": fingerprint_cases(cases),
            }
            for split, cases in cases_by_split.items()
        }

    manifest: dict[str, Any] = {
        "schema_version": DATASET_SCHEMA_VERSION,
        "name": description.name,
        "format": description.family,
        "origin": description.origin,
        "partial": description.partial,
        "splits": splits(content.cases),
        "images": {name: {"sha256": digest, "bytes": size} for name, (digest, size) in sorted(facts.facts.items())},
        "report": {
            "counts": [
                {
                    "what": count.quantity,
                    "found": count.count,
                    "paper": count.paper,
                    "note": count.note,
                }
                for count in content.counts
            ],
            "notes": content.notes,
        },
    }
    if content.extra_configs and not description.text_only:
        manifest["more"] = {config: splits(cases_by_split) for config, cases_by_split in content.extra_configs.items()}
    if content.patients is not None:
        manifest["patients"] = content.patients
    if content.validated is not None:
        manifest["validated"] = content.validated
    return manifest
