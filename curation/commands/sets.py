"""Commands probe, hallucinate, exam, gmai, gmai-tag and gmai-validate: sets from custom data.

The keys of an exam follow from headers and geometry, those of the other sets from labels and facts
that people have stated.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from curation.commands import shared_options
from curation.commands.pair_questions import open_language_model
from dataset_builders.errors import BadInput


def probe(
    table: Annotated[
        Path,
        typer.Argument(
            help="table of your images: image, organ, modality, findings; optional: positions, absent, license, source"
        ),
    ],
    images: shared_options.Images,
    out: shared_options.SetFolder,
    organ: Annotated[
        str | None,
        typer.Option(help="the organ of all images, instead of a column"),
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option(help="the modality of all images, instead of a column"),
    ] = None,
    boxes: Annotated[
        Path | None,
        typer.Option(
            help="positions from boxes: a table with image, finding, x, y, width, height (pixels)",
        ),
    ] = None,
    image_column: shared_options.ImageColumn = "image",
    findings_column: Annotated[
        str,
        typer.Option(help="column with the findings, separated by ; or |"),
    ] = "findings",
    seed: Annotated[int, typer.Option(help="seed of the adversarial counterparts")] = 0,
    unbalanced: Annotated[
        bool,
        typer.Option(
            "--unbalanced",
            help="draw the counterparts as in the paper: more questions, some answerable without the image",
        ),
    ] = False,
    no_text_search: shared_options.NoTextSearch = False,
) -> None:
    """Write ProbMed-style yes/no questions, each with an adversarial counterpart.

    They ask about modality, organ, findings and positions. The set is built with `medprobe build
    probmed --as NAME`.
    """
    from curation.custom_sets.probe_table import (
        add_box_positions,
        read_probe_table,
        resolve_image_files,
    )
    from curation.custom_sets.probing import ABSENT_NOTE, QA_TYPE_ASPECTS, build_probes, measure_text_only
    from curation.images import image_index, image_table, set_images
    from dataset_builders.files import write_json

    probe_table = read_probe_table(table, image_column, findings_column, organ, modality)
    names = image_index.list_images(images)
    metadata = image_table.align_to_images(names, table, image=image_column)
    probed = resolve_image_files(probe_table.images, names, table)
    # Patients who withdrew earlier must not return in a new set.
    withdrawn = set_images.withdrawn_images(names, images, metadata, out)
    probed = [image for image in probed if image.image not in withdrawn]
    if probe_table.unused:
        typer.echo(f"columns that are not used: {', '.join(probe_table.unused)}")
    if probe_table.skipped:
        typer.echo(
            f"{probe_table.skipped.total()} labels were skipped because they are not plain findings of their image:"
        )
        for (label, reason), count in sorted(probe_table.skipped.items()):
            typer.echo(f"  {count} x {label!r}: {reason}")

    box_counts: dict[str, int] = {}
    if boxes is not None:
        probed, counts = add_box_positions(probed, boxes, images)
        box_counts = dict(counts)
        typer.echo(
            f"boxes: {counts['used']} give a position, {counts['across_parts']} lie across several "
            "parts of their image, "
            f"{counts['of_other_images']} are of images that are not in the table, "
            f"{counts['unmatched']} match no finding"
        )
    # `build_probes` does not know the file, so its name is added to the message.
    try:
        rows, left_out = build_probes(probed, seed, not unbalanced)
    except BadInput as error:
        raise BadInput(f"{table}: {error}") from None
    scores, note = measure_text_only(rows)

    def write_files(folder: Path, names: dict[str, str], _: object) -> dict[str, object]:
        renamed = [
            row
            | {
                "id": Path(names[row["image"]]).stem,
                "image": names[row["image"]],
            }
            for row in rows
        ]
        write_json(folder / "probmed.json", renamed)
        return {
            "questions": len(rows), **left_out, "text_only_majority": scores, "boxes": box_counts,
            "labels_skipped": probe_table.skipped.total(),
            "notes": [note, ABSENT_NOTE],
        }  # fmt: skip

    set_images.write_custom_set(
        out,
        "probmed",
        images,
        {row["image"] for row in rows},
        metadata,
        write_files,
        text_search=not no_text_search,
    )
    typer.echo(f"{len(rows)} questions on {len(probed)} images")
    for key, count in left_out.items():
        aspect = QA_TYPE_ASPECTS[key.removeprefix("without_")]
        typer.echo(
            f"not asked: {aspect} {count} times (no counterpart is known to be absent, or the text "
            "would give the answer away)"
        )
    typer.echo(note)
    typer.echo(f"wrote {out}; next: medprobe build probmed --as {out.name} --source {out}")


def _format_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {reason}" for reason, count in reasons.items()) or "none"


def hallucinate(
    questions: Annotated[
        Path,
        typer.Argument(
            help="your questions: .csv, .jsonl ... with image, question, option_A, option_B ..., answer",
        ),
    ],
    images: shared_options.Images,
    out: shared_options.SetFolder,
    fakes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="number of fake questions that --model writes (default: as many as your questions)",
        ),
    ] = None,
    fake_questions: Annotated[
        Path | None,
        typer.Option(
            help="file of your own fake questions (question and options), instead of --model",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="name of the language model that writes the fake questions"),
    ] = None,
    base_url: shared_options.BaseUrl = None,
    tries: shared_options.Tries = 3,
    send_to_provider: shared_options.SendToProvider = False,
    modality: Annotated[
        str, typer.Option(help="kind of your images, for the prompt of the fake questions")
    ] = "medical image",
    unrelated_by: Annotated[
        str,
        typer.Option(
            help="column with the organ that the image shows; a swapped image must not show it",
        ),
    ] = "organ",
    table: shared_options.Table = None,
    seed: Annotated[int, typer.Option(help="seed of the options' order and of the choice of images")] = 0,
    no_text_search: shared_options.NoTextSearch = False,
    accept_text_alone: shared_options.AcceptTextAlone = False,
) -> None:
    """Turn your questions into FAKE, NONE and SWAP questions (HALT-MedVQA).

    The set is built with `medprobe build halt-medvqa --as NAME`.
    """
    from curation.custom_sets import hallucination
    from curation.custom_sets.custom_questions import (
        image_groups,
        read_custom_questions,
        read_fake_questions,
    )
    from curation.images import image_index, image_table, set_images
    from curation.report.blind_baseline import measure_text_alone
    from dataset_builders.benchmarks.halt_medvqa.reader import SCENARIO_FILES
    from dataset_builders.files import write_json

    if (model is None) == (fake_questions is None):
        raise BadInput(
            "hallucinate: fake questions come from --model or from --fake-questions. Give one of the two.",
        )
    custom_questions = read_custom_questions(questions, unrelated_by)
    # Check the images before any reply is paid for.
    missing = [question.image for question in custom_questions if not (images / question.image).is_file()]
    if missing:
        raise BadInput(
            f"--images {images}: {missing[0]} and {len(missing) - 1} more of "
            f"{len(custom_questions)} questions' images "
            "do not exist."
        )
    metadata = (
        image_groups(custom_questions, questions)
        if table is None
        else image_table.align_to_images(image_index.list_images(images), table)
    )
    groups = dict(zip(metadata["image"], metadata["group"], strict=True))
    withdrawn = set_images.withdrawn_images(metadata["image"], images, metadata, out)
    custom_questions = [question for question in custom_questions if question.image not in withdrawn]
    if out.exists():
        raise BadInput(f"{out}: already exists. Give another --out, or delete it.")

    # Questions about the same image or group must be in the same fold.
    fold_keys = [[q.image, ("group", groups[q.image])] if groups.get(q.image) else [q.image] for q in custom_questions]
    text_alone = measure_text_alone(
        [q.options for q in custom_questions], [q.answer for q in custom_questions], fold_keys
    )
    # Refuse before fake questions are paid for: a set that text alone answers does not test vision.
    if text_alone.gives_away and not accept_text_alone:
        raise BadInput(
            f"{questions}: the text alone gives answers away ({text_alone}). Add questions with "
            "other answers, or "
            "build the set as it is with --accept-text-alone."
        )
    if fake_questions is not None:
        fake_texts = read_fake_questions(fake_questions)
    else:
        writer, asking = open_language_model(str(model), base_url, send_to_provider, tries=tries, seed=seed)
        # The journal is next to the questions rather than in the set, so that a call with another
        # --out reuses it.
        journal = questions.with_name(f"{questions.name}.fakes.jsonl")
        fake_texts = hallucination.generate_fake_questions(
            fakes or len(custom_questions), writer, journal, asking, modality
        )

    question_images = {question.image for question in custom_questions}
    relations = hallucination.ImageRelations(groups, image_index.perceptual_hashes(images, question_images))
    swap_entries, not_swapped = hallucination.build_swap_entries(custom_questions, relations, seed)
    none_entries, without_none = hallucination.build_none_entries(custom_questions, seed)
    entries: dict[str, Any] = {
        "fake": hallucination.build_fake_entries(
            fake_texts,
            sorted(question_images),
            seed,
            custom_questions,
        ),
        "none": none_entries,
        "swap": swap_entries,
    }
    # The format has a file for each scenario, none of which may be empty.
    empty = [scenario for scenario, scenario_entries in entries.items() if not scenario_entries]
    if empty:
        raise BadInput(
            f"{questions}: no question can be used for {', '.join(empty)} (left out of none: "
            f"{_format_counts(without_none)}; of swap: {_format_counts(not_swapped)}). For a swap, "
            "a question must "
            f"name an organ, and some other image must not show its {unrelated_by}."
        )

    def write_files(folder: Path, names: dict[str, str], _: object) -> dict[str, object]:
        for scenario, scenario_entries in entries.items():
            for entry in scenario_entries.values() if isinstance(scenario_entries, dict) else scenario_entries:
                entry |= {key: names[entry[key]] for key in ("img", "original_img") if key in entry}
            write_json(folder / SCENARIO_FILES[scenario], scenario_entries)
        return {
            "questions": {scenario: len(scenario_entries) for scenario, scenario_entries in entries.items()},
            "not_swapped": dict(not_swapped), "without_none": dict(without_none),
            "notes": [hallucination.describe_controls(entries), f"Text alone, your own questions: {text_alone}."],
        }  # fmt: skip

    set_images.write_custom_set(
        out,
        "halt-medvqa",
        images,
        question_images,
        metadata,
        write_files,
        text_search=not no_text_search,
    )
    for scenario, scenario_entries in entries.items():
        typer.echo(f"{scenario}: {len(scenario_entries)} questions, controls included")
    for scenario, reasons in (("none", without_none), ("swap", not_swapped)):
        for reason, count in reasons.items():
            typer.echo(f"left out of {scenario}: {count} ({reason})")
    typer.echo(f"wrote {out}; next: medprobe build halt-medvqa --as {out.name} --source {out}")


def exam(
    folder: Annotated[Path, typer.Argument(help="folder of DICOM and NIfTI files")],
    out: shared_options.SetFolder,
    tasks: Annotated[str, typer.Option(help="comma-separated tasks (default: all; docs/exam.md)")] = "",
    limit: Annotated[int, typer.Option(min=1, help="maximum number of pairs of each task")] = 30,
    seed: Annotated[int, typer.Option(help="seed of the choice of slices, places and orders")] = 0,
    patient: Annotated[
        str | None,
        typer.Option(
            help="regular expression on the path of a NIfTI file; its first group is the patient (default: sub-..., "
            "else each file is a patient)"
        ),
    ] = None,
    body_part: Annotated[
        str, typer.Option(help="body part of files that state none, such as NIfTI: head, chest, abdomen ...")
    ] = "",
    no_text_search: shared_options.NoTextSearch = False,
) -> None:
    """Make an exam from DICOM and NIfTI files without annotators.

    Every key follows from headers that confirm each other, or from how a picture was made.
    """
    from curation.exam.exam_tasks import TASKS
    from curation.exam.pairs import build_exam
    from curation.readers.pictures import count_skip_reasons

    names = shared_options.split_names(tasks) or list(TASKS)
    pair_counts, skips = build_exam(folder, out, names, limit, seed, patient, body_part, not no_text_search)
    for name, count in pair_counts.items():
        typer.echo(f"{count:7} pairs  {name}: {TASKS[name].ability}")
    for (_, reason), count in count_skip_reasons(skips).most_common():
        typer.echo(f"{count:7} left out: {reason}")
    typer.echo(
        f"wrote {out}; keep {out}.key and {out}.left_out.csv private; next: medprobe build mediconfusion --as {out.name} "
        f"--source {out}"
    )


def gmai(
    sources: Annotated[
        Path,
        typer.Argument(help="sources.yaml: the source datasets and how to read each of them"),
    ],
    out: Annotated[
        Path,
        typer.Option(help="working and output folder; its name becomes the benchmark's name"),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="language model that proposes questions for review (default: only templates)",
        ),
    ] = None,
    base_url: shared_options.BaseUrl = None,
    send_to_provider: shared_options.SendToProvider = False,
    no_text_search: shared_options.NoTextSearch = False,
    accept_text_alone: shared_options.AcceptTextAlone = False,
    skip_contradictions: shared_options.SkipContradictions = False,
) -> None:
    """Build one benchmark from class folders, tables, COCO, VOC, YOLO, masks, NIfTI and DICOM.

    Steps: read the sources, map their labels, generate questions, select them, write the dataset.
    """
    from curation.gmai.pipeline import run_pipeline
    from curation.gmai.sources import PRIVATE_FOLDER

    writer, asking = open_language_model(model, base_url, send_to_provider) if model is not None else (None, None)
    outcome = run_pipeline(
        sources,
        out,
        writer,
        asking,
        not no_text_search,
        accept_text_alone,
        skip_contradictions,
    )
    funnel = outcome.funnel
    for name, counts in funnel["read"].items():
        typer.echo(", ".join([f"{name}: {counts['targets']} targets", *(
            f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if kind != "targets" and count
        )]))  # fmt: skip
    for note in outcome.notes:
        typer.echo(note)

    totals = {"targets": funnel["items"], "possible questions": funnel["possible_questions"]}
    totals |= {f"left out: {reason}": count for reason, count in (funnel["left_out"] | funnel["not_asked"]).items()}
    totals |= {f"questions ({split})": count for split, count in sorted(funnel["splits"].items())}
    for label, count in totals.items():
        if count:
            typer.echo(f"{count:7} {label}")

    typer.echo(f"wrote {out / 'dataset'} and {out / 'tsv'}; tables and funnel: {out / 'report'}")
    # Pictures show at a glance whether a reader has a wrong setting; counts do not show it at all.
    typer.echo(
        f"look at {out / PRIVATE_FOLDER / 'sheets'}: nine pictures of each dataset, marked and "
        "labelled as they were read"
    )
    typer.echo(
        f"keep private: {out / PRIVATE_FOLDER} (pictures), {out / 'dataset.key'} and "
        f"{out / 'dataset.names.csv'} (which "
        f"files were skipped), {out / 'dataset-answers'} (the test split's answers)"
    )


def gmai_tag(
    out: Annotated[Path, typer.Argument(help="folder of `medprobe curate gmai`")],
    taggers: Annotated[
        str,
        typer.Option(
            help="comma-separated names of at least three people; three of them tag each label",
        ),
    ],
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7862,
) -> None:
    """Serve a page on which three taggers assign each label its task and department.

    The next `gmai` uses the majority.
    """
    from curation.gmai.pipeline import build_tagging
    from curation.gmai.sources import PRIVATE_FOLDER
    from dataset_builders.browser_page.page import serve_page

    names = shared_options.split_names(taggers)
    serve_page(
        lambda _: build_tagging(out, names),
        out / PRIVATE_FOLDER,
        "tag",
        f"tagging {out}",
        port,
    )


def gmai_validate(
    out: Annotated[Path, typer.Argument(help="folder of `medprobe curate gmai`")],
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7863,
) -> None:
    """Serve a page on which reviewers report faulty questions; the next `gmai` leaves these out."""
    from curation.gmai.pipeline import build_validation
    from curation.gmai.sources import PRIVATE_FOLDER
    from dataset_builders.browser_page.page import serve_page

    serve_page(
        lambda _: build_validation(out),
        out / PRIVATE_FOLDER,
        "validate",
        f"validating {out}",
        port,
    )
