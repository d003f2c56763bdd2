"""Options that several commands of `medprobe curate` share."""

from pathlib import Path
from typing import Annotated

import typer

# Folders and tables
Table = Annotated[
    Path | None,
    typer.Option(help="table of the images: .csv, .tsv, .jsonl, .parquet, or ROCO's captions.txt"),
]
ImageColumn = Annotated[str, typer.Option(help="column of the table with the image's file name")]
Questions = Annotated[
    Path,
    typer.Argument(help="questions folder, made by `medprobe curate write`"),
]
# Language models
ModelName = Annotated[str, typer.Option(help="name of the language model on its server")]
BaseUrl = Annotated[
    str | None,
    typer.Option(help="address of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1"),
]
Tries = Annotated[
    int,
    typer.Option(
        min=1,
        help="maximum number of attempts per pair or image until a reply passes the checks",
    ),
]
SendToProvider = Annotated[
    bool,
    typer.Option(
        "--send-to-provider",
        help="permit sending texts to a server that is not on this machine",
    ),
]

# Sets
Images = Annotated[Path, typer.Option(help="folder of the images")]
SetFolder = Annotated[
    Path,
    typer.Option(help="folder to write; its name becomes the benchmark's name"),
]
Device = Annotated[
    str,
    typer.Option(
        help="auto (a GPU if there is one) | cpu | cuda: affects the speed, never the result",
    ),
]
AcceptTextAlone = Annotated[
    bool,
    typer.Option(
        "--accept-text-alone",
        help="build the set even if its questions' text gives answers away",
    ),
]
SkipContradictions = Annotated[
    bool,
    typer.Option(
        "--skip-contradictions",
        help="skip entries that contradict their dataset (a box outside its image, an unlisted class) instead of "
        "refusing the dataset",
    ),
]
NoTextSearch = Annotated[
    bool,
    typer.Option("--no-text-search", help="do not search for burned-in text"),
]

# Ray clusters
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="run on a Ray cluster: auto, host:port, or local to start one",
    ),
]
Workers = Annotated[int, typer.Option(help="with --ray: number of worker processes")]
GpusPerWorker = Annotated[float, typer.Option(help="with --ray: GPUs per worker")]


def split_names(text: str) -> list[str]:
    """Split a comma-separated option; a name that is given twice counts once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
