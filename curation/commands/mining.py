"""embed, pairs, histograms: from images to the pairs that two encoders see differently."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from curation.commands import shared_options

Threshold = Annotated[float | None, typer.Option(min=-1, max=1, help="override the mode's threshold")]


def embed(
    images: Annotated[
        str, typer.Argument(help="folder of images, or an address: s3://BUCKET/PATH, hf://datasets/ORG/NAME ...")
    ],
    out: Annotated[Path, typer.Option(help="embeddings folder; give the same one for each encoder")],
    encoder: Annotated[
        str, typer.Option(help="biomedclip | clip | dinov2 | open_clip:ID | transformers:ID")
    ] = "biomedclip",
    name: Annotated[str | None, typer.Option(help="what to call this encoder (default: its id)")] = None,
    pooling: Annotated[
        Literal["projected", "cls", "mean"] | None,
        typer.Option(help="(default: projected; dinov2, transformers:ID: cls)"),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="revision of the model on the Hub")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="images per batch")] = 32,
    device: shared_options.Device = "auto",
    ray: shared_options.Ray = None,
    workers: shared_options.Workers = 2,
    gpus_per_worker: shared_options.GpusPerWorker = 0,
) -> None:
    """Embed the images of a folder or an address. Repeat the command to resume; images that are already embedded are skipped."""
    import pandas as pd

    from curation.images.file_names import load_file_names, name_list_path
    from curation.images.image_index import UNREADABLE_FILE, list_images, open_image_source
    from curation.mining.embedding import embed as embed_images
    from curation.mining.encoders import load_encoder, parse_encoder
    from curation.mining.pair_search import pick_device

    spec = parse_encoder(encoder, pooling, revision, name)
    if "://" not in images:
        list_images(open_image_source(images))  # raises where there are none, before an encoder is downloaded
    encode = None
    if ray is not None:
        from curation.mining.on_ray import encode_on_ray
        from dataset_builders.ray_cluster import RayCluster

        encode = encode_on_ray(RayCluster(ray, workers, gpus_per_worker), device)
        device = "cpu"  # here it only says which weights it is
    loaded = load_encoder(spec, pick_device(device))
    path = embed_images(images, out, loaded, batch_size, encode)
    typer.echo(f"wrote {path}")
    lost = pd.read_csv(out / UNREADABLE_FILE, dtype=str, keep_default_na=False)
    if len(lost):
        # By name on a screen; in logs by id, since a file's name may be its patient's.
        names = load_file_names(out) if sys.stdout.isatty() else {}
        typer.echo(f"{len(lost)} images could not be read and are left out:")
        for row in lost.to_dict("records"):
            typer.echo(f"  {names.get(row['image'], row['image'])}: {row['reason']}")
    if name_list_path(out).is_file():
        typer.echo(f"{name_list_path(out)} says which file is which id; it and {out}.key stay private", err=True)


def pairs(
    embeddings: shared_options.Embeddings,
    out: Annotated[Path, typer.Option(help="folder for the search; repeat the command to resume")],
    med: Annotated[str, typer.Option(help="name of the medical encoder")] = "biomedclip",
    gen: Annotated[str, typer.Option(help="name of the general encoder")] = "dinov2",
    mode: Annotated[
        Literal["confusing", "easy", "reversed"], typer.Option(help="the paper's thresholds")
    ] = "confusing",
    med_at_least: Threshold = None,
    med_at_most: Threshold = None,
    gen_at_least: Threshold = None,
    gen_at_most: Threshold = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1, help="draw this many pairs uniformly at random (default: all pairs; easy, reversed: 10000)"
        ),
    ] = None,
    all_pairs: Annotated[
        bool, typer.Option("--all", help="list all pairs, also in the modes easy and reversed")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="seed of the sample")] = 0,
    device: shared_options.Device = "auto",
    top: Annotated[
        int | None, typer.Option(min=1, help="keep only this many pairs, those with the largest |sim_med - sim_gen|")
    ] = None,
    cap_per_image: Annotated[int | None, typer.Option(min=1, help="maximum number of pairs per image")] = None,
    near_duplicate: Annotated[
        int,
        typer.Option(
            min=-1,
            max=64,
            help="set aside pairs whose perceptual hashes differ in at most this many of 64 bits; -1: none",
        ),
    ] = 6,
    table: shared_options.Table = None,
    min_caption: Annotated[
        int, typer.Option(help="with --table: set aside pairs with a caption of fewer characters")
    ] = 100,
    ray: shared_options.Ray = None,
    workers: shared_options.Workers = 2,
    gpus_per_worker: shared_options.GpusPerWorker = 0,
) -> None:
    """Find every pair of images that one encoder confuses and another distinguishes; the search is exact."""
    import pandas as pd

    from curation.images.file_names import load_file_names, share_name_list
    from curation.images.image_index import INDEX_FILE
    from curation.images.image_table import align_to_images
    from curation.mining.embedding import open_embeddings
    from curation.mining.pair_mining import (
        BlockRunner,
        PairFilter,
        image_attributes,
        mine_pairs,
        search_in_process,
        suggest_thresholds,
    )
    from curation.mining.pair_search import SEARCH_MODES, PairSearch, Thresholds
    from dataset_builders.errors import BadInput

    given = {
        "med_at_least": med_at_least, "med_at_most": med_at_most, "gen_at_least": gen_at_least, "gen_at_most": gen_at_most,
    }  # fmt: skip
    thresholds = Thresholds(
        **(vars(SEARCH_MODES[mode]) | {name: value for name, value in given.items() if value is not None})
    )
    if sample is None and mode != "confusing" and not all_pairs:
        sample = 10_000
    vectors, others = (open_embeddings(embeddings, name) for name in (med, gen))
    index = pd.read_parquet(embeddings / INDEX_FILE)
    known = None
    if table is not None:
        files = load_file_names(embeddings)
        names = [files.get(image, image) for image in index["image"]]
        known = align_to_images(names, table)
        if (known["group"] == "").all():
            typer.echo("the table names no group: pairs of one patient, figure or article are not set aside", err=True)
    images = image_attributes(index, known, min_caption)
    run: BlockRunner = search_in_process
    if ray is not None:
        from curation.mining.on_ray import search_on_ray
        from dataset_builders.ray_cluster import RayCluster

        if sample is not None:
            raise BadInput(
                "--ray: a sample is drawn in one process. Leave out --ray, or add --all in the modes easy and reversed."
            )
        arrays = [Path(str(each.filename)).absolute() for each in (vectors, others)]
        run = search_on_ray(arrays, device, RayCluster(ray, workers, gpus_per_worker))
    search = PairSearch(vectors, others, thresholds, "cpu" if ray else device)
    report = mine_pairs(
        search, images, out, PairFilter(near_duplicate, top, cap_per_image), sample, seed, search_blocks=run
    )
    share_name_list(embeddings, out)
    counts = report["counts"]
    typer.echo(
        f"found {counts['found']} pairs; set aside {counts['near_duplicate']} near-duplicates, "
        f"{counts['same_group']} of one group and {counts['short_caption']} with a short caption; kept {counts['chosen']} in "
        f"{out / 'pairs.parquet'}"
    )
    worth = report["independent_pairs"]
    if worth < 0.9 * counts["chosen"]:
        typer.echo(
            f"they share images or groups, so they are worth {worth:.1f} independent pairs; with --cap-per-image 1 they share none"
        )
    if not counts["found"]:
        for line in suggest_thresholds(search):
            typer.echo(line)


def histograms(
    pairs: Annotated[Path, typer.Argument(help="search folder, made by `medprobe curate pairs`")],
    embeddings: Annotated[Path, typer.Option(help="embeddings folder of that search")],
    encoder: Annotated[list[str], typer.Option(help="name of an encoder (repeatable)")],
    out: Annotated[Path, typer.Option(help="page to write (.html)")] = Path("histograms.html"),
) -> None:
    """Plot how similar the pairs are according to each encoder (appendix F, figure 8)."""
    import numpy as np

    from curation.mining.pair_mining import pair_similarities
    from curation.report.quality_page import write_histograms

    found = pair_similarities(pairs, embeddings, encoder)
    write_histograms(found, out)
    for name, cosines in found.items():
        typer.echo(f"{name}: median {np.median(cosines):.3f}")
    typer.echo(f"wrote {out}")
