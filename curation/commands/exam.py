"""Command exam: questions whose keys follow from headers and geometry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curation.commands import shared_options


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
