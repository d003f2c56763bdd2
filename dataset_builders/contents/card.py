"""Write the texts of a dataset repository: the dataset card (README.md), LICENSE.md and eval.yaml.
Read what the makers of a custom set state about its patients, which the card repeats.

The card has YAML for loaders and the Hub, and a body for readers unfamiliar with medprobe. The
statements are in about.yaml in the source, and in the report of `medprobe curate deidentify`.

With eval.yaml the Hub lists a dataset as a benchmark and `inspect eval hf/ORG/NAME` runs it. A task
is a set of questions whose plain accuracy is one of the benchmark's metrics, since inspect-ai's own
scorer computes accuracy. The task's id names split and metric (`test_individual_accuracy`), and
only that metric may be published to it. Its config stores the questions as inspect-ai reads them:
the image as a data URI (stored once per row group), the answer key as letters, ids beside them.
Specification: https://huggingface.co/docs/hub/eval-results; inspect_ai/_eval/task/hf.py (0.3.285).

See also: the benchmarks' texts (`benchmarks/`), the Parquet files.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dataset_builders.benchmarks import FORMATS, spec
from dataset_builders.benchmarks.spec import CardText
from dataset_builders.errors import BadInput
from dataset_builders.parquet import ConfigSizes
from dataset_builders.schema import TEXT, TEXTS, Case, ColumnType, SourceContent
from dataset_builders.source_files import read_yaml

ABOUT_FILE = "about.yaml"
ABOUT_FIELDS = ("deidentification", "approval", "consent", "license", "terms")
ABOUT_REMEDY = (
    f"Write {ABOUT_FILE} beside the set's files, with any of {', '.join(ABOUT_FIELDS)}, each a sentence: how the images were "
    "de-identified and by whom, the ethics approval and its number, consent, licence, terms of use."
)
LICENSE_FILE = "LICENSE.md"
"""Counts of images per licence. The Hub accepts this name, `LICENSE`, or a URL as `license_link`.
"""
ORIGIN_TEXTS = {
    "official": "This is the complete benchmark, built from the authors' files.",
    "part": "**This is part of the benchmark**, built from the authors' files. Scores on it are not comparable with published ones.",
    "phantom": (
        "**These are drawn phantoms, not medical images.** They have the official layout and show that everything "
        "works; a score on them has no medical meaning."
    ),
    "own": (
        "**This is a custom set in the format of a benchmark**, and contains nothing from that benchmark. Scores on it are not "
        "comparable with published ones."
    ),
    "converted": (
        "**This set was made elsewhere and converted by medprobe.** Its questions, options and keys are those of its "
        "source; open questions are left out. Compare scores only between runs on this dataset."
    ),
    "custom": (
        "**This is not the complete official benchmark** (a sample, a part of it, or a custom benchmark in "
        "the same format). Scores on it are not comparable with published ones."
    ),
}
PUBLIC_DATA_WARNING = (
    "The images and texts of this benchmark have been public for years and may be in a model's training data. "
)
NO_TRAINING_NOTICE = (
    "Do not train on any of its splits (except a config made for fine-tuning), and keep this page out of text corpora."
)
CUSTOM_LIMITS = "See above (How it was built) for what was measured on this set and what was not checked."
CUSTOM_LICENCE = (
    "The licence of each image is the one stated by the makers of this set (`image_license`; `unknown` if they state none). "
    "Terms for the whole set, if any, are listed under Patients."
)
TASK_CONFIG = "inspect"
TASK_ROW_MEANING = "a question as inspect-ai reads it (`eval.yaml`): the image as a data URI, the key as a letter"
TASK_COLUMNS: dict[str, ColumnType] = {
    "question_id": TEXT,
    "case_id": TEXT,
    "image_id": TEXT,
    "image_uri": ColumnType("uri"),
    "question": TEXT,
    "options": TEXTS,
    "target": TEXT,
}
"""Columns of a task's config. `target` has the letters of the correct options: "B" or "BC"."""


@dataclass(frozen=True)
class Description:
    """What a repository says about itself. `partial` states what is missing, None if it is
    complete.
    """

    name: str
    family: str
    origin: str
    partial: str | None
    text_only: bool
    has_tasks: bool = False
    """Whether eval.yaml and the configs of its tasks are written."""

    @property
    def kind(self) -> str:
        """Key of the sentence in `ORIGIN_TEXTS`."""
        if self.origin == "custom" and self.name != self.family:
            return "converted" if spec(self.family).any_source else "own"
        return "part" if self.partial and self.origin == "official" else self.origin

    @property
    def card(self) -> CardText:
        """Texts of the card; for a custom set, those that apply to its format."""
        card = spec(self.family).card
        if self.kind in ("own", "converted"):
            return replace(card, limits=CUSTOM_LIMITS, licence=CUSTOM_LICENCE)
        return replace(card, summary=f"{card.summary} {card.origin_note}".strip())


def render_card(
    description: Description,
    content: SourceContent,
    columns: dict[str, dict[str, ColumnType]],
    written: dict[str, ConfigSizes],
    entries: list[dict[str, Any]],
) -> str:
    """Render README.md.

    Args:
        description: what the repository says about itself.
        content: what the reader returned.
        columns: config -> column -> type.
        written: config -> sizes.
        entries: the card's `configs` (`data_files.config_entries`).
    """
    head = yaml.safe_dump(_card_metadata(description, entries), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{head}---\n\n{_render_body(description, content, columns, written)}"


def _card_metadata(description: Description, entries: list[dict[str, Any]]) -> dict[str, Any]:
    per_source = {"license": "other", "license_name": "per-source", "license_link": LICENSE_FILE}
    return {
        "pretty_name": repository_title(description),
        "language": ["en"],
        **({"license": "cc0-1.0"} if description.origin == "phantom" else per_source),
        "task_categories": ["visual-question-answering"],
        "tags": [
            "medical",
            "radiology",
            "reliability",
            "benchmark",
            "medprobe",
            description.family,
            description.origin,
        ],
        "configs": entries,
    }


def repository_title(description: Description) -> str:
    """Return the title of the repository."""
    is_custom = description.name != description.family
    title = description.name if is_custom else spec(description.family).card.title
    return f"{title} (phantoms)" if description.origin == "phantom" else title


def _render_body(
    description: Description,
    content: SourceContent,
    columns: dict[str, dict[str, ColumnType]],
    written: dict[str, ConfigSizes],
) -> str:
    card, is_own = description.card, description.kind in ("own", "converted")

    # Only the images of benchmarks and known sets have been public for years.
    is_of_authors = description.kind not in ("own", "converted", "phantom") or bool(content.citation)
    parts = [
        f"# {repository_title(description)}",
        card.summary,
        ORIGIN_TEXTS[description.kind],
    ]
    if description.partial:
        parts.append(f"**Partial:** {description.partial}.")
    if description.text_only:
        parts.append("**Text only:** this build has no images (only the config `questions_text`).")
    parts += [
        _usage_section(description, written),
        _configs_section(description, written),
        _columns_section(columns[next(iter(columns))]),
        _provenance_section(content),
        f"## How answers are scored\n\n{card.metrics}",
        f"## Limits\n\n{card.limits}\n\n**Contamination.** {PUBLIC_DATA_WARNING if is_of_authors else ''}{NO_TRAINING_NOTICE}",
        _patients_section(content),
        _licences_section(description),
        _citation_section(content.citation, card, is_own),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _citation_section(citation: str, card: CardText, is_own: bool) -> str:
    """Render the citation of a known set, else that of the benchmark whose format the set has."""
    heading = "Citation" if citation or not is_own else f"The format is that of {card.title}"
    return f"## {heading}\n\n```bibtex\n{citation or card.citation}\n```" if citation or card.citation else ""


def _usage_section(description: Description, written: dict[str, ConfigSizes]) -> str:
    config = "questions" if "questions" in written else "questions_text"

    # The example must load as it stands, so use a split that exists.
    split = next(iter(written[config].rows), "test")
    code, images = f'questions = load_dataset("ORG/{description.name}", "questions_text")["{split}"]', ""
    if config == "questions":
        code = (
            f'questions = load_dataset("ORG/{description.name}")["{split}"]      # a row per question, with its image\n'
            f'cases = load_dataset("ORG/{description.name}", "cases", streaming=True)["{split}"]'
        )
        images = (
            "\n\nThe files store each image once, even if several questions show it. Loading `questions` without "
            "streaming duplicates it in your cache; `cases` (one row per case, each image once) does not."
        )
    return (
        f"## Use\n\n```python\nfrom datasets import load_dataset\n\n{code}\n```\n\n"
        "Replace ORG with the owner, or give the path of a local copy. `answer` contains positions in `options` "
        f"(starting at 0) and is empty if the answer is hidden.{images}"
    )


def _configs_section(description: Description, written: dict[str, ConfigSizes]) -> str:
    about = {
        "questions": "a question with its image",
        "cases": "the questions that are scored together, with each image once",
        "questions_text": "a question without its image",
        "lexical_tree": "a leaf of the lexical tree",
        # Configs of tasks are named `inspect` or `inspect_METRIC`.
        **{config: TASK_ROW_MEANING for config in written if config.split("_")[0] == TASK_CONFIG},
        **spec(description.family).configs,
    }
    lines = ["## Configs", "", "| config | a row is | splits (rows) | MB |", "|---|---|---|---|"]
    for config, done in written.items():
        rows = ", ".join(f"{split} ({count:,})" for split, count in done.rows.items())
        lines.append(f"| `{config}` | {about.get(config, '')} | {rows} | {done.parquet_bytes / 1e6:.1f} |")

    return "\n".join(lines)


def _columns_section(columns: dict[str, ColumnType]) -> str:
    """Render the table of a config's columns; a label column lists its positions and names."""
    lines = ["## Columns", "", "| column | type | meaning |", "|---|---|---|"]
    for name, kind in columns.items():
        labels = ", ".join(f"{position} {label}" for position, label in enumerate(kind.names))
        lines.append(f"| `{name}` | {kind.name}{f': {labels}' if labels else ''} | {kind.meaning} |")
    return "\n".join(lines) + (
        "\n\nA label is stored as an integer: `features[column].int2str` of `datasets` gives its name; pandas and duckdb show the number. "
        "A column without any values is omitted; a question without a value has null."
    )


def _escape_inline(text: str) -> str:
    # Text from sources must not break the table or inject HTML.
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


def _provenance_section(content: SourceContent) -> str:
    lines = [
        "## How it was built",
        "",
        "By `medprobe build` from the source files alone; the same input gives the same bytes. `manifest.json` contains a "
        "SHA-256 per image and the fingerprint of each split (SHA-256 over ids, questions, options, types and answers).",
        "",
        "| count | here | paper | |",
        "|---|---|---|---|",
    ]
    for count in content.counts:
        paper = f"{count.paper:,}" if count.paper is not None else ""
        differs = count.paper is not None and count.paper != count.count
        lines.append(
            f"| {_escape_inline(count.quantity)} | {count.count:,} | {paper} | "
            f"{_escape_inline(count.note) if differs or not paper else ''} |"
        )

    return "\n".join([*lines, "", *(f"- {_escape_inline(note)}" for note in content.notes)]).rstrip()


def _patients_section(content: SourceContent) -> str:
    """Render the makers' statements about the patients of a custom set."""
    if not content.patients:
        return ""
    lines = [f"- **{field.capitalize()}:** {_escape_inline(words)}" for field, words in content.patients.items()]
    return "\n".join(["## Patients", "", *lines])


def _licences_section(description: Description) -> str:
    terms = f"{description.card.licence} [Number of images per licence]({LICENSE_FILE})."
    if description.origin == "phantom":
        terms = "Questions and images were created by medprobe and are released under CC0-1.0."
    return f"## Licences and image terms\n\n{terms}"


def render_licence_file(description: Description, content: SourceContent) -> str:
    """Render LICENSE.md: the terms of the questions, and the number of images per licence.

    Args:
        description: what the repository says about itself.
        content: what the reader returned.

    Returns:
        Markdown; empty for phantoms, which are CC0.
    """
    if description.origin == "phantom":
        return ""
    lines = ["# Licences and image terms", "", description.card.licence]
    images = {image.image_id: image for case in content.all_cases() for image in case.images}
    by_licence = Counter(image.license for image in images.values())
    if images:
        lines += ["", "| image licence | images |", "|---|---|"]
        lines += [f"| {_escape_inline(licence)} | {count:,} |" for licence, count in sorted(by_licence.items())]
        lines += [
            "",
            "`image_license` and `image_source` give the details per question. Images with an unknown licence must not be "
            "redistributed: keep a copy of this repository that contains such images private.",
        ]

    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class HubTask:
    """A task of eval.yaml: the questions of `split` whose accuracy is `metric`, stored in
    `config`.
    """

    split: str
    metric: str
    config: str

    @property
    def id(self) -> str:
        return f"{self.split}_{self.metric}"


def select_hub_tasks(family: str, content: SourceContent) -> list[tuple[HubTask, list[Case]]]:
    """Select the tasks that a set offers.

    Args:
        family: the benchmark, which declares the tasks.
        content: what the reader returned.

    Returns:
        Each task with its cases, reduced to the task's questions. A split without an answer key has
            no tasks.
    """
    metrics = spec(family).tasks
    tasks = []
    for split, cases in content.cases.items():
        for metric, belongs in metrics.items():
            task_cases = list(_select_cases(cases, belongs))
            if task_cases:
                # Tasks of one metric share a config; otherwise each metric needs its own questions.
                config = TASK_CONFIG if len(metrics) == 1 else f"{TASK_CONFIG}_{metric}"
                tasks.append((HubTask(split, metric, config), task_cases))

    return tasks


def _select_cases(cases: Iterable[Case], belongs: Any) -> Iterator[Case]:
    """Yield the cases, reduced to the questions that belong to a task and have an answer key."""
    for case in cases:
        questions = tuple(q for q in case.questions if q.answer and belongs(q))
        if questions:
            image_ids = {q.image_id for q in questions}

            # Drop images that no remaining question shows, so that they are not stored.
            yield replace(
                case,
                questions=questions,
                images=tuple(i for i in case.images if i.image_id in image_ids),
            )


def parse_task_metric(task_id: str, split: str) -> str | None:
    """Return the metric that a task's id names.

    Args:
        task_id: id of the task in eval.yaml.
        split: split of the results.

    Returns:
        The metric; None for a task of another split or of an eval.yaml not written by medprobe.
    """
    metric = task_id.removeprefix(f"{split}_")
    declared = {metric for name in FORMATS for metric in spec(name).tasks}
    return metric if task_id == f"{split}_{metric}" and metric in declared else None


def render_eval_yaml(description: Description, tasks: Sequence[HubTask]) -> str:
    """Render eval.yaml.

    It says what the set contains and whether it is comparable with published numbers, since the Hub
    shows no card with it.

    Args:
        description: what the repository says about itself.
        tasks: its tasks.
    """
    origin = "" if description.kind == "official" else ORIGIN_TEXTS[description.kind]
    text_only = "Text only: the questions without their images." if description.text_only else ""
    summary = " ".join(filter(None, (description.card.summary, origin, text_only))).replace("*", "")
    metrics = "; ".join(f"{task.id}: accuracy, which medprobe calls {task.metric}" for task in tasks)
    fields: dict[str, Any] = {"input": "question", "target": "target", "choices": "options"}
    if not description.text_only:
        fields["input_image"] = "image_uri"
    document: dict[str, Any] = {
        "name": repository_title(description),
        "description": f"{summary} Each task has one metric ({metrics}).",
        "evaluation_framework": "inspect-ai",
        "tasks": [
            {
                "id": task.id,
                "config": task.config,
                "split": task.split,
                "field_spec": {**fields, "metadata": ["question_id", "case_id", "image_id"]},
                "solvers": [{"name": "multiple_choice"}],
                "scorers": [{"name": "choice"}],
            }
            for task in tasks
        ],
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)


def read_about(source: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Read a custom set's statements about its patients.

    Args:
        source: the source folder.
        manifest: the source's manifest.

    Returns:
        Field -> statement. `deidentification` defaults to the report's counts if the images were
            de-identified by medprobe.

    Raises:
        BadInput: about.yaml is invalid.
    """
    statements: dict[str, str] = {}
    if (source / ABOUT_FILE).is_file():
        try:
            document = read_yaml(source / ABOUT_FILE)
        except yaml.YAMLError as error:
            raise BadInput(
                f"{source / ABOUT_FILE}: not valid YAML ({' '.join(str(error).split())}). {ABOUT_REMEDY}"
            ) from None
        if not isinstance(document, dict) or not all(
            key in ABOUT_FIELDS and isinstance(text, str) for key, text in document.items()
        ):
            raise BadInput(
                f"{source / ABOUT_FILE}: must contain only {', '.join(ABOUT_FIELDS)}, as strings. {ABOUT_REMEDY}"
            )
        statements = {
            key: " ".join(document[key].split()) for key in ABOUT_FIELDS if str(document.get(key) or "").strip()
        }

    report = manifest.get("deidentification")
    if "deidentification" not in statements and isinstance(report, dict):
        statements["deidentification"] = _format_report(report)

    # Fixed order, so that equal statements give equal cards.
    return {key: statements[key] for key in ABOUT_FIELDS if key in statements}


def _format_report(report: Mapping[str, Any]) -> str:
    """Format the counts of `medprobe curate deidentify` as a phrase."""
    text = report.get("text") or {}
    return (
        f"by {report.get('made_by')} on {report.get('at')} ({report.get('method')}; "
        f"{text.get('images_with_text')} images with burned-in text, decided by a person: {text.get('decisions')})"
    )


def check_deidentification_stated(manifest: Mapping[str, Any]) -> None:
    """Check before publishing that a custom set states how its images were de-identified.

    Args:
        manifest: the dataset's manifest.

    Raises:
        BadInput: there is no such statement.
    """
    statements = manifest.get("patients")
    if isinstance(statements, dict) and not statements.get("deidentification"):
        raise BadInput(
            "this set does not state how its images were de-identified. Make it from the output of `medprobe curate deidentify`, or "
            f"state it yourself (even if there is nothing to remove), then build again. {ABOUT_REMEDY}"
        )
