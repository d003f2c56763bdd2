"""Commands exam, gmai, gmai-tag and gmai-validate: benchmarks from a hospital's own files.

The keys of an exam follow from headers and geometry, those of a GMAI-MMBench-style benchmark from
labels.
"""

from pathlib import Path
from typing import Annotated

import typer

from curation.commands import shared_options
from curation.commands.pair_questions import open_language_model


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
    from curation.readers.consistency import count_skip_reasons

    # A name given twice is one task.
    names = list(dict.fromkeys(name.strip() for name in tasks.split(",") if name.strip())) or list(TASKS)
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
    from curation.gmai.pipeline import PRIVATE_FOLDER, run_pipeline

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
    from curation.gmai.pipeline import PRIVATE_FOLDER
    from curation.gmai.validation import build_tagging
    from dataset_builders.browser_page.page import serve_page

    # A name that is given twice counts as one tagger.
    names = list(dict.fromkeys(name.strip() for name in taggers.split(",") if name.strip()))
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
    from curation.gmai.pipeline import PRIVATE_FOLDER
    from curation.gmai.validation import build_validation
    from dataset_builders.browser_page.page import serve_page

    serve_page(
        lambda _: build_validation(out),
        out / PRIVATE_FOLDER,
        "validate",
        f"validating {out}",
        port,
    )
