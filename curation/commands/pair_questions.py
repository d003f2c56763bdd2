"""Commands write, captions, categorize, patterns, review, export and quality.

They lead from questions that a language model writes to a reviewed benchmark.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curation.commands import shared_options
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    from curation.writing.asking import AskSettings, Writer

MAX_PAIRS_WITHOUT_LIMIT = 20_000
"""For more pairs than this, --limit must be given, since each pair costs a reply."""


def write_drafts(
    pairs: Annotated[Path, typer.Argument(help="search folder, made by `medprobe curate pairs`")],
    table: Annotated[Path, typer.Option(help="table with the captions")],
    model: shared_options.ModelName,
    out: Annotated[Path, typer.Option(help="questions folder; repeat the command to resume")],
    base_url: shared_options.BaseUrl = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only the first N pairs")] = None,
    min_caption: Annotated[
        int,
        typer.Option(help="only pairs in which both captions have at least this many characters"),
    ] = 100,
    tries: shared_options.Tries = 3,
    seed: Annotated[int, typer.Option(help="seed of the model and of the options' order")] = 0,
    price: Annotated[
        str | None,
        typer.Option(help="price per million input and output tokens, e.g. 2.5,10: shows the cost"),
    ] = None,
    send_to_provider: shared_options.SendToProvider = False,
) -> None:
    """Have a language model write a question for each pair (prompt A.1).

    Each question is checked; if it fails the checks, the prompt is sent again.
    """
    import pandas as pd

    from curation.images import image_table, privacy
    from curation.writing.question_writing import write_questions
    from eval_harness.models.interface import parse_price

    if not (pairs / "pairs.parquet").is_file():
        raise BadInput(f"{pairs}: contains no pairs.parquet. Make it with `medprobe curate pairs`.")
    pair_table = pd.read_parquet(pairs / "pairs.parquet")
    # Guard against an unexpectedly large bill.
    if limit is None and len(pair_table) > MAX_PAIRS_WITHOUT_LIMIT:
        raise BadInput(
            f"{pairs}: contains {len(pair_table)} pairs, each of which costs a reply. Choose some "
            "with "
            "`medprobe curate pairs --top`, or give --limit."
        )
    pair_table = pair_table if limit is None else pair_table.head(limit)

    # Pairs name images by their keyed ids, the table of captions by their file names.
    images = sorted({*pair_table["image_1"], *pair_table["image_2"]})
    files = privacy.load_file_names(pairs)
    image_files = [files.get(image, image) for image in images]
    metadata = image_table.align_to_images(list(files.values()) or image_files, table)
    caption_column = metadata.set_index("image")["caption"]
    image_captions = dict(zip(images, caption_column[image_files], strict=True))
    writer, asking = open_language_model(
        model,
        base_url,
        send_to_provider,
        tries=tries,
        min_caption=min_caption,
        seed=seed,
        price=parse_price(price),
    )
    funnel = write_questions(pair_table, image_captions, writer, out, asking)
    # The drafts use the ids of the pairs, so they need the list that maps ids to files.
    privacy.share_name_list(pairs, out)
    for stage, count in funnel.items():
        typer.echo(f"{stage}: {count}")
    if not funnel["written"]:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in funnel["not_written"].items())
        raise BadInput(
            f"{out}: none of {funnel['pairs']} questions could be written "
            f"({reasons or f'no two captions have {min_caption} characters'}). "
            "Give longer captions, more --tries or, with another --out, another --model."
        )


def captions(
    table: Annotated[Path, typer.Argument(help="table of the images with their captions")],
    model: shared_options.ModelName,
    out: Annotated[Path, typer.Option(help="table to write (.csv), for a person to check")],
    base_url: shared_options.BaseUrl = None,
    tries: shared_options.Tries = 3,
    send_to_provider: shared_options.SendToProvider = False,
) -> None:
    """Have a language model extract facts from captions (ProbMed, section 3).

    The facts are organ, modality, findings and positions. A person checks the table, then `curate
    probe` reads it.
    """
    from curation.images.image_table import read_image_table
    from curation.writing.captions import extract_captions

    # The journal has the same name with another suffix, so the suffix .csv is required.
    if out.suffix != ".csv":
        raise BadInput(f"--out {out}: give a name that ends in .csv.")
    writer, asking = open_language_model(model, base_url, send_to_provider, tries=tries)
    counts = extract_captions(read_image_table(table), writer, out, asking)
    typer.echo(
        f"read {counts['read']} captions ({counts['kept']} more in earlier calls); "
        f"{counts['refused']} got no valid "
        f"reply, {counts['no_reply']} got no reply, {counts['no_caption']} images have no caption"
    )
    if not counts["read"] + counts["kept"]:
        raise BadInput(
            f"{out}: no caption of {table} could be used. Give another --model, or more --tries.",
        )
    typer.echo(
        f"wrote {out}; check every row against its image and enter your name in `reviewed`, then: "
        f"medprobe curate probe {out} --images FOLDER --out NAME"
    )


def categorize(
    questions: shared_options.Questions,
    model: shared_options.ModelName,
    base_url: shared_options.BaseUrl = None,
    discover: Annotated[
        bool,
        typer.Option(
            "--discover",
            help="first let the model propose the categories from 100 captions",
        ),
    ] = False,
    categories: Annotated[
        str | None,
        typer.Option(help="comma-separated categories (default: the paper's)"),
    ] = None,
    tries: shared_options.Tries = 3,
    seed: Annotated[int, typer.Option(help="seed of the captions shown")] = 0,
    send_to_provider: shared_options.SendToProvider = False,
) -> None:
    """Have a language model categorize each image by its caption (prompt A.2).

    Replies outside the list of categories are rejected.
    """
    from curation.writing.captions import categorize_images, discover_categories
    from curation.writing.question_writing import read_drafts

    drafts = read_drafts(questions)
    writer, asking = open_language_model(model, base_url, send_to_provider, tries=tries, seed=seed)
    choices = shared_options.split_names(categories) if categories else None
    # An explicit list takes precedence over --discover.
    if discover and choices is None:
        choices = discover_categories(drafts, writer, questions, asking)
    result = categorize_images(drafts, writer, questions, asking, choices)
    typer.echo(f"categories: {', '.join(result['categories'])}")
    typer.echo(
        f"{len(result['images'])} images were categorized; {len(result['refused'])} got no valid "
        "reply; "
        f"{len(result['unasked'])} got no reply at all"
    )
    if not result["images"]:
        raise BadInput(
            f"{questions}: no image got a category. Give another --model, or other --categories.",
        )


def patterns(
    questions: shared_options.Questions,
    model: shared_options.ModelName,
    base_url: shared_options.BaseUrl = None,
    seed: Annotated[int, typer.Option(help="seed of the pairs shown")] = 0,
    send_to_provider: shared_options.SendToProvider = False,
) -> None:
    """Have a language model describe visual patterns that confuse the encoder (prompt A.3)."""
    from curation.writing.captions import find_patterns
    from curation.writing.question_writing import read_drafts

    drafts = read_drafts(questions)
    writer, asking = open_language_model(model, base_url, send_to_provider, seed=seed)
    typer.echo(find_patterns(drafts, writer, questions, asking))


def open_language_model(
    model: str, base_url: str | None, send_to_provider: bool, **settings: Any
) -> "tuple[Writer, AskSettings]":
    """Open the language model of a command.

    Args:
        model: name of the model on the server; a prefix `openai:` is accepted.
        base_url: address of the server; None for OpenAI's own.
        send_to_provider: whether texts may be sent to a server that is not on this machine.
        settings: further fields of `AskSettings`.

    Returns:
        The model, to which no request has been sent yet, and the settings of its requests.
    """
    from curation.writing.asking import AskSettings
    from eval_harness.models.http.openai_chat import OpenAIChat
    from eval_harness.models.interface import Settings

    chat = OpenAIChat(model.removeprefix("openai:"), Settings(base_url=base_url))
    return chat, AskSettings(send=send_to_provider, **settings)


def review(
    questions: shared_options.Questions,
    images: Annotated[Path, typer.Option(help="folder of the embedded images")],
    port: Annotated[int, typer.Option(help="port of the page")] = 7861,
    host: Annotated[
        str,
        typer.Option(
            help="address to listen on, for reviewers on other machines; needs --reviewers",
        ),
    ] = "127.0.0.1",
    reviewers: Annotated[
        str,
        typer.Option(
            help="comma-separated names of the reviewers: each gets a personal link; there is no other access"
        ),
    ] = "",
    certificate: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="PEM file with certificate and private key, to serve HTTPS",
        ),
    ] = None,
) -> None:
    """Serve a page on which radiologists score and correct the questions.

    Every change is saved immediately.
    """
    from curation.review.review import build_review
    from dataset_builders.browser_page.page import serve_page

    serve_page(
        lambda access: build_review(questions, images, access),
        questions,
        "review",
        f"reviewing {questions}",
        port,
        host,
        reviewers.split(",") if reviewers else (),
        certificate,
    )


def export_benchmark(
    name: Annotated[str, typer.Argument(help="name of the benchmark")],
    questions: Annotated[Path, typer.Option(help="questions folder, reviewed")],
    images: Annotated[Path, typer.Option(help="folder of the embedded images")],
    out: Annotated[Path | None, typer.Option(help="folder to write (default: NAME)")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="search folder, for the counts of the pair search"),
    ] = None,
    table: shared_options.Table = None,
    unreviewed: Annotated[
        bool,
        typer.Option("--unreviewed", help="include pairs without a review; the manifest says so"),
    ] = False,
    no_text_search: shared_options.NoTextSearch = False,
) -> None:
    """Write the kept pairs in MediConfusion's layout.

    `medprobe build mediconfusion --as NAME --source FOLDER` reads it.
    """
    import json

    from curation.images import image_index, image_table
    from curation.mediconfusion_export import export_pairs, images_without_licence

    metadata = image_table.align_to_images(image_index.list_images(images), table) if table is not None else None
    folder = out or Path(name)
    funnel = export_pairs(
        name,
        questions,
        images,
        folder,
        pairs,
        metadata,
        unreviewed,
        not no_text_search,
    )
    typer.echo(json.dumps(funnel, indent=1))
    if restricted := images_without_licence(folder):
        typer.echo(
            f"{len(restricted)} images (first: {restricted[0]}) have no licence that permits "
            "redistribution: "
            "the dataset can only be published with --private. Licences come from the table "
            "(--table, column license)."
        )
    typer.echo(f"wrote {folder}; next: medprobe build mediconfusion --as {name} --source {folder}")


def quality(
    data: Annotated[
        str,
        typer.Argument(help="built dataset of any format: its folder, or its id on the Hub"),
    ],
    out: Annotated[
        Path,
        typer.Option(help="page to write (.html); the numbers go to a .json file next to it"),
    ] = Path("quality.html"),
    model: Annotated[
        str | None,
        typer.Option(help="also ask a model without the images: its name on a server"),
    ] = None,
    base_url: shared_options.BaseUrl = None,
    send_to_provider: shared_options.SendToProvider = False,
) -> None:
    """Report how well text alone scores on a benchmark, and how balanced and varied it is."""
    from curation.report.blind_baseline import score_blind
    from curation.report.quality import blind_metrics, measure_quality, write_quality_report

    ask_blind = None
    if model is not None:
        # Greedy decoding, as in an evaluation, makes the baseline reproducible.
        writer, asking = open_language_model(model, base_url, send_to_provider, temperature=0.0)
        ask_blind = partial(score_blind, model=writer, journal=out.with_suffix(".blind.jsonl"), asking=asking)
    report = measure_quality(data, ask_blind)
    write_quality_report(report, out)
    if report.blind_model is not None:
        score = report.blind_model.scores[blind_metrics(report.family)[-1]]
        if score["value"] is not None:
            typer.echo(
                f"{report.blind_model.model} without images: {score['value']:.1f} % (chance {score['chance']:.1f})"
            )
    for line in report.warnings() or ["Nothing stands out."]:
        typer.echo(line)
    typer.echo(f"wrote {out}")
