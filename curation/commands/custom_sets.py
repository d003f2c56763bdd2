"""probe, hallucinate: sets in ProbMed's and HALT-MedVQA's formats from custom tables and questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from curation.commands import shared_options
from curation.commands.pair_questions import open_language_model


def probe(
    table: Annotated[
        Path,
        typer.Argument(
            help="table of your images: image, organ, modality, findings, and positions, absent, license, source"
        ),
    ],
    images: shared_options.Images,
    out: shared_options.SetFolder,
    organ: Annotated[str | None, typer.Option(help="the organ of all images, instead of a column")] = None,
    modality: Annotated[str | None, typer.Option(help="the modality of all images, instead of a column")] = None,
    boxes: Annotated[
        Path | None,
        typer.Option(help="positions from boxes: a table with image, finding, x, y, width, height (pixels)"),
    ] = None,
    image_column: shared_options.ImageColumn = "image",
    findings_column: Annotated[str, typer.Option(help="column with the findings, separated by ; or |")] = "findings",
    seed: Annotated[int, typer.Option(help="seed of the adversarial answers")] = 0,
    unbalanced: Annotated[
        bool,
        typer.Option(
            "--unbalanced", help="draw as in the paper: more questions, some of which can be answered without the image"
        ),
    ] = False,
    no_text_search: shared_options.NoTextSearch = False,
) -> None:
    """Write yes/no questions from modality to position, each with an adversarial one (ProbMed), for `medprobe build probmed --as NAME`."""
    from curation.custom_sets.probe_table import add_box_positions, read_probe_table, resolve_image_files
    from curation.custom_sets.probing import ABSENT_NOTE, ASPECTS, measure_text_only
    from curation.custom_sets.probing import build_probes as ask_about
    from curation.images.image_index import list_images
    from curation.images.image_table import align_to_images
    from curation.images.set_images import withdrawn_images, write_custom_set
    from dataset_builders.errors import BadInput
    from dataset_builders.files import write_json

    read = read_probe_table(table, image_column, findings_column, organ, modality)
    names = list_images(images)
    known = align_to_images(names, table, image=image_column)
    probed = resolve_image_files(read.images, names, table)
    gone = withdrawn_images(names, images, known, out)
    probed = [image for image in probed if image.image not in gone]
    if read.unused:
        typer.echo(f"columns that are not used: {', '.join(read.unused)}")
    if read.skipped:
        typer.echo(f"{read.skipped.total()} labels were skipped, since they are no plain findings of their image:")
        for (label, why), count in sorted(read.skipped.items()):
            typer.echo(f"  {count} x {label!r}: {why}")
    about_boxes: dict[str, int] = {}
    if boxes is not None:
        probed, counts = add_box_positions(probed, boxes, images)
        about_boxes = dict(counts)
        typer.echo(
            f"boxes: {counts['used']} give a position, {counts['across_parts']} lie across parts of their image, "
            f"{counts['of_other_images']} are of images that the table does not have, {counts['unmatched']} belong to no finding"
        )
    try:
        rows, left_out = ask_about(probed, seed, not unbalanced)
    except BadInput as error:
        raise BadInput(f"{table}: {error}") from None
    scores, note = measure_text_only(rows)

    def write_files(folder: Path, names: dict[str, str], _: object) -> dict[str, object]:
        named = [row | {"id": Path(names[row["image"]]).stem, "image": names[row["image"]]} for row in rows]
        write_json(folder / "probmed.json", named)
        return {
            "questions": len(rows), **left_out, "text_only_majority": scores, "boxes": about_boxes,
            "labels_skipped": read.skipped.total(),
            "notes": [note, ABSENT_NOTE],
        }  # fmt: skip

    used = {row["image"] for row in rows}
    write_custom_set(out, "probmed", images, used, known, write_files, text_search=not no_text_search)
    typer.echo(f"{len(rows)} questions on {len(probed)} images")
    for what, count in left_out.items():
        topic = ASPECTS[what.removeprefix("without_")]
        typer.echo(
            f"not asked: {topic} {count} times (nothing is known to be absent to ask beside it, or the text would give the answer)"
        )
    typer.echo(note)
    typer.echo(f"wrote {out}; next: medprobe build probmed --as {out.name} --source {out}")


def _format_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {why}" for why, count in reasons.items()) or "none"


def hallucinate(
    questions: Annotated[
        Path,
        typer.Argument(help="your questions: .csv, .jsonl ... with image, question, option_A, option_B ..., answer"),
    ],
    images: shared_options.Images,
    out: shared_options.SetFolder,
    fakes: Annotated[
        int | None,
        typer.Option(min=1, help="number of fake questions to have written by --model (default: as many as yours)"),
    ] = None,
    fake_questions: Annotated[
        Path | None, typer.Option(help="file of custom fake questions (question and options), instead of --model")
    ] = None,
    model: Annotated[str | None, typer.Option(help="name of the language model that writes the fake questions")] = None,
    base_url: shared_options.BaseUrl = None,
    tries: shared_options.Tries = 3,
    send_to_provider: shared_options.SendToProvider = False,
    modality: Annotated[
        str, typer.Option(help="what kind of images yours are, for the fake questions")
    ] = "medical image",
    unrelated_by: Annotated[
        str,
        typer.Option(help="column of the questions with the organ in the image; a swapped image shows nothing of it"),
    ] = "organ",
    table: shared_options.Table = None,
    seed: Annotated[int, typer.Option(help="seed of the order and of the choice of images")] = 0,
    no_text_search: shared_options.NoTextSearch = False,
    accept_text_alone: shared_options.AcceptTextAlone = False,
) -> None:
    """Turn your questions into FAKE, NONE and SWAP questions (HALT-MedVQA), for `medprobe build halt-medvqa --as NAME`."""
    from curation.custom_sets import hallucination
    from curation.custom_sets.custom_questions import image_groups, read_custom_questions, read_fake_questions
    from curation.custom_sets.hallucination import ImageRelations
    from curation.images.image_index import list_images, perceptual_hashes
    from curation.images.image_table import align_to_images
    from curation.images.set_images import withdrawn_images, write_custom_set
    from curation.report.blind_baseline import measure_text_alone
    from curation.writing.asking import AskSettings
    from dataset_builders.benchmarks.halt_medvqa.reader import SCENARIO_FILES
    from dataset_builders.errors import BadInput
    from dataset_builders.files import write_json

    if (model is None) == (fake_questions is None):
        raise BadInput("hallucinate: fake questions come from --model or from --fake-questions. Give one of the two.")
    own = read_custom_questions(questions, unrelated_by)
    missing = [question.image for question in own if not (images / question.image).is_file()]
    if missing:
        raise BadInput(
            f"--images {images}: {missing[0]} and {len(missing) - 1} more of {len(own)} questions' images do not exist."
        )
    if table is None:
        known = image_groups(own, questions)
    else:
        known = align_to_images(list_images(images), table)
    groups = dict(zip(known["image"], known["group"], strict=True))
    gone = withdrawn_images(known["image"], images, known, out)
    own = [question for question in own if question.image not in gone]
    if out.exists():
        raise BadInput(f"{out}: exists already. Give another --out, or delete it.")
    held = [(q.image, *([("group", groups[q.image])] if groups.get(q.image) else [])) for q in own]
    alone = measure_text_alone([q.options for q in own], [q.answer for q in own], held)
    if alone.gives_away and not accept_text_alone:
        raise BadInput(
            f"{questions}: the text alone gives answers away ({alone}). Add questions with other answers; --accept-text-alone makes "
            "the set as it is."
        )
    if fake_questions is not None:
        invented = read_fake_questions(fake_questions)
    else:
        asking = AskSettings(tries, seed=seed, send=send_to_provider)
        journal = questions.with_name(f"{questions.name}.fakes.jsonl")
        invented = hallucination.generate_fake_questions(
            len(own) if fakes is None else fakes, open_language_model(str(model), base_url), journal, asking, modality
        )
    about = ImageRelations(groups, perceptual_hashes(images, {question.image for question in own}))
    swaps, left_out = hallucination.build_swap_entries(own, about, seed)
    none, without_none = hallucination.build_none_entries(own, seed)
    entries: dict[str, Any] = {
        "fake": hallucination.build_fake_entries(invented, sorted({question.image for question in own}), seed, own),
        "none": none,
        "swap": swaps,
    }
    empty = [scenario for scenario, made in entries.items() if not made]
    if empty:
        raise BadInput(
            f"{questions}: no question can be used for {', '.join(empty)} (left out of none: {_format_counts(without_none)}; of swap: "
            f"{_format_counts(left_out)}). A question to swap names an organ, and other images show nothing of its {unrelated_by}."
        )

    def write_files(folder: Path, names: dict[str, str], _: object) -> dict[str, object]:
        for scenario, made in entries.items():
            hallucination.rename_entry_images(made.values() if isinstance(made, dict) else made, names)
            write_json(folder / SCENARIO_FILES[scenario], made)
        return {
            "questions": {scenario: len(made) for scenario, made in entries.items()},
            "not_swapped": dict(left_out), "without_none": dict(without_none),
            "notes": [hallucination.describe_controls(entries), f"Text alone, your own questions: {alone}."],
        }  # fmt: skip

    used = {question.image for question in own}
    write_custom_set(out, "halt-medvqa", images, used, known, write_files, text_search=not no_text_search)
    for scenario, made in entries.items():
        typer.echo(f"{scenario}: {len(made)} questions, controls included")
    for scenario, reasons in (("none", without_none), ("swap", left_out)):
        for why, count in reasons.items():
            typer.echo(f"left out of {scenario}: {count} ({why})")
    typer.echo(f"wrote {out}; next: medprobe build halt-medvqa --as {out.name} --source {out}")
