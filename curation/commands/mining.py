"""Commands embed, pairs and histograms: from images to the pairs on which two encoders disagree."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from curation.commands import shared_options
from dataset_builders.errors import BadInput

Threshold = Annotated[
    float | None,
    typer.Option(min=-1, max=1, help="override the mode's threshold"),
]


def embed(
    images: Annotated[
        str,
        typer.Argument(
            help="folder of images, or an address: s3://BUCKET/PATH, hf://datasets/ORG/NAME ...",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="embeddings folder; give the same one for each encoder"),
    ],
    encoder: Annotated[
        str, typer.Option(help="biomedclip | clip | dinov2 | open_clip:ID | transformers:ID")
    ] = "biomedclip",
    name: Annotated[
        str | None,
        typer.Option(help="name of this encoder in the files (default: its id)"),
    ] = None,
    pooling: Annotated[
        Literal["projected", "cls", "mean"] | None,
        typer.Option(help="vector to use (default: projected; for dinov2 and transformers:ID, cls)"),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="revision of the model on the Hub")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="images per batch")] = 32,
    device: shared_options.Device = "auto",
    ray: shared_options.Ray = None,
    workers: shared_options.Workers = 2,
    gpus_per_worker: shared_options.GpusPerWorker = 0,
) -> None:
    """Embed the images of a folder or an address.

    Repeat the command to resume; images that are already embedded are skipped.
    """
    import pandas as pd

    from curation.images import image_index, privacy
    from curation.mining import embedding, pair_search

    spec = embedding.parse_encoder(encoder, pooling, revision, name)
    if "://" not in images:
        # If there are no images, fail before the encoder is downloaded.
        image_index.list_images(image_index.open_image_source(images))
    encode = None
    if ray is not None:
        from curation.mining.on_ray import encode_on_ray
        from dataset_builders.ray_cluster import RayCluster

        encode = encode_on_ray(RayCluster(ray, workers, gpus_per_worker), device)
        device = "cpu"  # the workers compute; this process only identifies the weights
    loaded = embedding.load_encoder(spec, pair_search.pick_device(device))
    path = embedding.embed(images, out, loaded, batch_size, encode)
    typer.echo(f"wrote {path}")

    unreadable = pd.read_csv(out / image_index.UNREADABLE_FILE, dtype=str, keep_default_na=False)
    if len(unreadable):
        # A file may be named after its patient, so names are shown on a screen only; logs get ids.
        names = privacy.load_file_names(out) if sys.stdout.isatty() else {}
        typer.echo(f"{len(unreadable)} images could not be read and are left out:")
        for row in unreadable.to_dict("records"):
            typer.echo(f"  {names.get(row['image'], row['image'])}: {row['reason']}")
    if privacy.name_list_path(out).is_file():
        typer.echo(
            f"{privacy.name_list_path(out)} maps ids to files; keep it and {out}.key private",
            err=True,
        )


def pairs(
    embeddings: Annotated[
        Path,
        typer.Argument(help="embeddings folder, made by `medprobe curate embed`"),
    ],
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
            min=1,
            help="draw this many pairs uniformly at random (default: all pairs; easy, reversed: 10000)",
        ),
    ] = None,
    all_pairs: Annotated[
        bool, typer.Option("--all", help="list all pairs, also in the modes easy and reversed")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="seed of the sample")] = 0,
    device: shared_options.Device = "auto",
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="keep only this many pairs, those with the largest |sim_med - sim_gen|",
        ),
    ] = None,
    cap_per_image: Annotated[
        int | None,
        typer.Option(min=1, help="maximum number of pairs per image"),
    ] = None,
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
    """Find every pair of images that one encoder confuses and another distinguishes.

    The search is exact.
    """
    import pandas as pd

    from curation.images import image_index, image_table, privacy
    from curation.mining import embedding, pair_mining, pair_search

    options = {
        "med_at_least": med_at_least, "med_at_most": med_at_most, "gen_at_least": gen_at_least, "gen_at_most": gen_at_most,
    }  # fmt: skip
    thresholds = replace(
        pair_search.SEARCH_MODES[mode], **{name: bound for name, bound in options.items() if bound is not None}
    )
    # Nearly all pairs count as easy or reversed, so listing them all would fill the disk.
    if sample is None and mode != "confusing" and not all_pairs:
        sample = 10_000
    medical_vectors, general_vectors = (embedding.open_embeddings(embeddings, name) for name in (med, gen))
    index = pd.read_parquet(embeddings / image_index.INDEX_FILE)
    metadata = None
    if table is not None:
        files = privacy.load_file_names(embeddings)
        # The index may contain ids, but the table has file names.
        names = [files.get(image, image) for image in index["image"]]
        metadata = image_table.align_to_images(names, table)
        if (metadata["group"] == "").all():
            typer.echo(
                "the table has no groups, so pairs of the same patient, figure or article are not set aside",
                err=True,
            )
    images = pair_mining.image_attributes(index, metadata, min_caption)
    run: pair_mining.BlockRunner = pair_mining.search_in_process
    if ray is not None:
        from curation.mining.on_ray import search_on_ray
        from dataset_builders.ray_cluster import RayCluster

        # Workers search blocks independently and cannot share one random sample.
        if sample is not None:
            raise BadInput(
                "--ray: a sample is drawn in one process. Leave out --ray, or add --all in the modes easy and reversed."
            )
        vector_files = [Path(str(vectors.filename)).absolute() for vectors in (medical_vectors, general_vectors)]
        run = search_on_ray(vector_files, device, RayCluster(ray, workers, gpus_per_worker))
    # With Ray, only the workers use the device; this process collects their results.
    search = pair_search.PairSearch(medical_vectors, general_vectors, thresholds, "cpu" if ray else device)
    report = pair_mining.mine_pairs(
        search, images, out, pair_mining.PairFilter(near_duplicate, top, cap_per_image), sample, seed, search_blocks=run
    )
    privacy.share_name_list(embeddings, out)

    counts = report["counts"]
    typer.echo(
        f"found {counts['found']} pairs; set aside {counts['near_duplicate']} near-duplicates, "
        f"{counts['same_group']} of the same group and {counts['short_caption']} with a short "
        f"caption; kept {counts['chosen']} in "
        f"{out / 'pairs.parquet'}"
    )
    # Pairs that share images are correlated, so state how many independent pairs they amount to.
    independent_pairs = report["independent_pairs"]
    if independent_pairs < 0.9 * counts["chosen"]:
        typer.echo(
            f"they share images or groups, so they count as {independent_pairs:.1f} independent "
            "pairs; "
            "--cap-per-image 1 avoids shared images"
        )
    # Suggest thresholds that would match some pairs.
    if not counts["found"]:
        for line in pair_mining.suggest_thresholds(search):
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
    from curation.report.quality import write_histograms

    cosines_by_encoder = pair_similarities(pairs, embeddings, encoder)
    write_histograms(cosines_by_encoder, out)
    for name, cosines in cosines_by_encoder.items():
        typer.echo(f"{name}: median {np.median(cosines):.3f}")
    typer.echo(f"wrote {out}")
