"""The commands `medprobe curate ...`. Each imports what it needs when it runs, so that `medprobe --help` stays
quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Make a benchmark of your own: mine confusing pairs, write questions, review, export.", no_args_is_help=True
)

MOST_PAIRS = 20_000
"""More pairs than this are not asked about by mistake."""

Embeddings = Annotated[Path, typer.Argument(help="embeddings folder, made by `medprobe curate embed`")]
Table = Annotated[
    Path | None, typer.Option(help="table of the images: .csv, .tsv, .jsonl, .parquet, or ROCO's captions.txt")
]
ImageColumn = Annotated[str, typer.Option(help="column of the table that names the image file")]
CaptionColumn = Annotated[str, typer.Option(help="column with the caption")]
GroupColumn = Annotated[str, typer.Option(help="column with what belongs together: patient, figure, article")]


@app.command()
def embed(
    images: Annotated[Path, typer.Argument(help="folder of images")],
    out: Annotated[Path, typer.Option(help="embeddings folder; give the same one for each encoder")],
    encoder: Annotated[
        str, typer.Option(help="biomedclip | clip | dinov2 | open_clip:ID | transformers:ID")
    ] = "biomedclip",
    name: Annotated[str | None, typer.Option(help="what to call this encoder [default: its id]")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="projected | cls | mean | pooler [default: projected; dinov2: cls]")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="float32 | float16 | bfloat16: what the model computes in")
    ] = "float32",
    image_size: Annotated[int | None, typer.Option(help="pixels per side [default: the model's own]")] = None,
    revision: Annotated[str | None, typer.Option(help="revision of the model on the Hub")] = None,
    dtype: Annotated[str, typer.Option(help="float32 | float16: what vectors are stored in")] = "float32",
    batch_size: Annotated[int, typer.Option(help="images at a time")] = 32,
    device: Annotated[str | None, typer.Option(help="cpu, cuda ... [default: a GPU if there is one]")] = None,
) -> None:
    """Embed a folder of images. Goes on where it was stopped; images embedded before cost nothing."""
    import torch

    from curation.embedding import embed as embed_images
    from curation.encoders import encoder_spec, load_encoder

    spec = encoder_spec(encoder, pooling, precision, image_size, revision, name)
    loaded = load_encoder(spec, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    path = embed_images(images, out, loaded, batch_size, dtype)
    typer.echo(f"wrote {path}")


@app.command()
def pairs(
    embeddings: Embeddings,
    out: Annotated[Path, typer.Option(help="folder for the search; the same command goes on where it was stopped")],
    med: Annotated[str, typer.Option(help="name of the medical encoder")] = "biomedclip",
    gen: Annotated[str, typer.Option(help="name of the general encoder")] = "dinov2",
    mode: Annotated[str, typer.Option(help="confusing | easy | reversed: the paper's thresholds")] = "confusing",
    med_at_least: Annotated[float | None, typer.Option(help="in place of the mode's")] = None,
    med_at_most: Annotated[float | None, typer.Option(help="in place of the mode's")] = None,
    gen_at_least: Annotated[float | None, typer.Option(help="in place of the mode's")] = None,
    gen_at_most: Annotated[float | None, typer.Option(help="in place of the mode's")] = None,
    sample: Annotated[
        int | None, typer.Option(help="draw so many pairs uniformly [default: all pairs; easy, reversed: 10000]")
    ] = None,
    all_pairs: Annotated[bool, typer.Option("--all", help="list all pairs of easy or reversed too")] = False,
    seed: Annotated[int, typer.Option(help="seed of the sample")] = 0,
    top: Annotated[
        int | None, typer.Option(help="only so many pairs, those with the largest |sim_med - sim_gen|")
    ] = None,
    cap_per_image: Annotated[int | None, typer.Option(help="no image in more pairs than this")] = None,
    near_duplicate: Annotated[
        int, typer.Option(help="set pairs aside whose perceptual hashes differ in at most so many of 64 bits; -1: none")
    ] = 6,
    table: Table = None,
    min_caption: Annotated[
        int, typer.Option(help="with --table: only images whose caption has so many characters")
    ] = 100,
    image_column: ImageColumn = "image",
    caption_column: CaptionColumn = "caption",
    group_column: GroupColumn = "group",
) -> None:
    """Find every pair that one encoder confuses and another tells apart, exactly."""
    import pandas as pd

    from curation.confusing_pairs import MODES, PairSearch, Thresholds
    from curation.embedding import open_embeddings
    from curation.image_index import INDEX
    from curation.image_table import Columns, join_table, read_table
    from curation.pair_mining import Choice, images_of, mine
    from dataset_builders.errors import BadInput

    if mode not in MODES:
        raise BadInput(f"--mode {mode}: give one of {', '.join(MODES)}.")
    given = {
        "med_at_least": med_at_least,
        "med_at_most": med_at_most,
        "gen_at_least": gen_at_least,
        "gen_at_most": gen_at_most,
    }
    for name, value in given.items():
        if value is not None and not -1 <= value <= 1:
            raise BadInput(f"--{name.replace('_', '-')} {value}: a cosine lies between -1 and 1. Give such a number.")
    thresholds = Thresholds(**(vars(MODES[mode]) | {name: value for name, value in given.items() if value is not None}))
    if sample is None and mode != "confusing" and not all_pairs:
        sample = 10_000
    vectors = open_embeddings(embeddings, med), open_embeddings(embeddings, gen)
    index = pd.read_parquet(embeddings / INDEX)
    groups, keep = None, None
    if table is not None:
        known = join_table(
            index["image"].tolist(),
            read_table(table, Columns(image=image_column, caption=caption_column, group=group_column)),
            table,
        )
        groups = known["group"]
        keep = (known["caption"].str.len() >= min_caption).to_numpy()
        typer.echo(f"{keep.sum()} of {len(index)} images have a caption of {min_caption} characters or more", err=True)
    images = images_of(index, groups, keep)
    med_vectors, gen_vectors = (array if keep is None else array[images.rows] for array in vectors)
    search = PairSearch(med_vectors, gen_vectors, thresholds)
    report = mine(search, images, out, Choice(near_duplicate, top, cap_per_image), sample, seed)
    counts = report["counts"]
    typer.echo(
        f"found {counts['found']} pairs; set aside {counts['near_duplicate']} near-duplicates "
        f"and {counts['same_group']} of one group; kept {counts['chosen']} in {out / 'pairs.parquet'}"
    )


Questions = Annotated[Path, typer.Argument(help="questions folder, made by `medprobe curate write`")]
ModelName = Annotated[str, typer.Option(help="name of the language model, as its server calls it")]
BaseUrl = Annotated[
    str | None, typer.Option(help="address of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")
]
Price = Annotated[str | None, typer.Option(help="price of a million tokens in and out, e.g. 2.5,10: shows the cost")]
Tries = Annotated[int, typer.Option(help="how often a pair or image is asked about until the reply is good")]
Temperature = Annotated[float, typer.Option(help="the paper gives none; with 0 every try reads the same")]


@app.command()
def write(
    pairs: Annotated[Path, typer.Argument(help="search folder, made by `medprobe curate pairs`")],
    table: Annotated[Path, typer.Option(help="table with the captions")],
    model: ModelName,
    out: Annotated[Path, typer.Option(help="questions folder; the same command goes on where it was stopped")],
    base_url: BaseUrl = None,
    limit: Annotated[int | None, typer.Option(help="only the first so many pairs")] = None,
    min_caption: Annotated[int, typer.Option(help="only pairs whose captions both have so many characters")] = 100,
    tries: Tries = 3,
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option(help="seed of the model and of the options' order")] = 0,
    price: Price = None,
    image_column: ImageColumn = "image",
    caption_column: CaptionColumn = "caption",
) -> None:
    """Have a language model write a question for each pair (prompt A.1), check it, ask again where it is no good."""
    import pandas as pd

    from curation.image_table import Columns, join_table, read_table
    from curation.question_writing import Asking, write_questions
    from dataset_builders.errors import BadInput
    from eval_harness.models.interface import read_price

    if not (pairs / "pairs.parquet").is_file():
        raise BadInput(f"{pairs}: holds no pairs.parquet. Make it with `medprobe curate pairs`.")
    found = pd.read_parquet(pairs / "pairs.parquet")
    if limit is None and len(found) > MOST_PAIRS:
        raise BadInput(
            f"{pairs}: holds {len(found)} pairs, each of which costs a reply. Choose some with `medprobe curate pairs --top`, "
            "or give --limit."
        )
    found = found if limit is None else found.head(limit)
    images = sorted({*found["image_1"], *found["image_2"]})
    known = join_table(images, read_table(table, Columns(image=image_column, caption=caption_column)), table)
    asking = Asking(tries, temperature, min_caption, seed, read_price(price))
    writer = _writer(model, base_url)
    funnel = write_questions(found, dict(zip(known["image"], known["caption"], strict=True)), writer, out, asking)
    for name, value in funnel.items():
        typer.echo(f"{name}: {value}")


@app.command()
def categorize(
    questions: Questions,
    model: ModelName,
    base_url: BaseUrl = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="first let the model find the categories in 100 captions")
    ] = False,
    categories: Annotated[str | None, typer.Option(help="the list, with commas [default: the paper's]")] = None,
    tries: Tries = 3,
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option(help="seed of the captions shown")] = 0,
) -> None:
    """Ask for the category of each image by its caption (prompt A.2); replies outside the list are refused."""
    from curation.categories import categorize as categorize_images
    from curation.categories import discover as discover_categories
    from curation.question_writing import Asking, read_drafts

    drafts = read_drafts(questions)
    writer, asking = _writer(model, base_url), Asking(tries, temperature, seed=seed)
    known = [name.strip() for name in categories.split(",") if name.strip()] if categories else None
    if discover and known is None:
        known = discover_categories(drafts, writer, questions, asking)
    result = categorize_images(drafts, writer, questions, asking, known)
    typer.echo(f"categories: {', '.join(result['categories'])}")
    typer.echo(
        f"{len(result['images'])} images have one; {len(result['refused'])} got no reply from the list; {len(result['unasked'])} no reply"
    )


@app.command()
def patterns(
    questions: Questions,
    model: ModelName,
    base_url: BaseUrl = None,
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option(help="seed of the pairs shown")] = 0,
) -> None:
    """Let a language model look for visual patterns that the encoder struggles with (prompt A.3)."""
    from curation.categories import patterns as find_patterns
    from curation.question_writing import Asking, read_drafts

    typer.echo(
        find_patterns(
            read_drafts(questions), _writer(model, base_url), questions, Asking(temperature=temperature, seed=seed)
        )
    )


def _writer(model: str, base_url: str | None):  # type: ignore[no-untyped-def]
    from eval_harness.models.interface import Settings
    from eval_harness.models.openai_chat import OpenAIChat

    return OpenAIChat(model.removeprefix("openai:"), Settings(base_url=base_url))


@app.command()
def review(
    questions: Questions,
    images: Annotated[Path, typer.Option(help="folder of images that was embedded")],
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7861,
) -> None:
    """Serve the page on which radiologists score and mend the questions; every change is saved as it is made."""
    from curation.review_app import serve

    serve(questions, images, port)


@app.command("export")
def export_benchmark(
    name: Annotated[str, typer.Argument(help="name of the benchmark: small letters, digits, hyphens")],
    questions: Annotated[Path, typer.Option(help="questions folder, reviewed")],
    images: Annotated[Path, typer.Option(help="folder of images that was embedded")],
    out: Annotated[Path | None, typer.Option(help="folder to write [default: NAME]")] = None,
    pairs: Annotated[Path | None, typer.Option(help="search folder, for the counts of its stage")] = None,
    table: Table = None,
    image_column: ImageColumn = "image",
    unreviewed: Annotated[
        bool, typer.Option("--unreviewed", help="also pairs that no one reviewed; the manifest says so")
    ] = False,
) -> None:
    """Write the kept pairs in MediConfusion's layout, which `medprobe build mediconfusion --as NAME --source` reads."""
    import json

    from curation.export import export
    from curation.image_index import list_images
    from curation.image_table import Columns, join_table, read_table

    known = None
    if table is not None:
        known = join_table(list_images(images), read_table(table, Columns(image=image_column)), table)
    folder = out or Path(name)
    typer.echo(json.dumps(export(name, questions, images, folder, pairs, known, unreviewed), indent=1))
    typer.echo(
        f"wrote {folder}; next: medprobe build mediconfusion --as {name} --source {folder} --images {folder / 'images'}"
    )


@app.command()
def quality(
    source: Annotated[Path, typer.Argument(help="exported folder, or the official files")],
    out: Annotated[Path, typer.Option(help="page to write (.html); the numbers go beside it (.json)")] = Path(
        "quality.html"
    ),
    images: Annotated[list[Path] | None, typer.Option(help="folder to find images in (may be given again)")] = None,
) -> None:
    """Look a benchmark over before publishing it: blind scores, give-aways, repeats, balance, power."""
    from curation.quality import check, write_report
    from dataset_builders.errors import BadInput

    if out.suffix != ".html":
        raise BadInput(f"--out {out}: the report is a page; give a name that ends in .html.")
    for folder in images or []:
        if not folder.is_dir():
            raise BadInput(f"--images {folder}: there is no such folder.")
    found = check(source, tuple(images or ()))
    write_report(found, source.resolve().name, out)
    for line in found.warnings() or ["Nothing stands out."]:
        typer.echo(line)
    typer.echo(f"wrote {out}")


@app.command()
def histograms(
    pairs: Annotated[Path, typer.Argument(help="search folder, made by `medprobe curate pairs`")],
    embeddings: Annotated[Path, typer.Option(help="embeddings folder of that search")],
    encoder: Annotated[list[str], typer.Option(help="name of an encoder (give it again for each)")],
    out: Annotated[Path, typer.Option(help="page to write (.html)")] = Path("histograms.html"),
) -> None:
    """Draw how similar the found pairs are to each encoder (appendix F, figure 8)."""
    from curation.similarity_histograms import write_histograms

    for name, median in write_histograms(pairs, embeddings, encoder, out).items():
        typer.echo(f"{name}: median {median:.3f}")
    typer.echo(f"wrote {out}")
