"""Embeddings and pairs from Ray with killed workers equal those of a single process."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from curation.mining.embedding import embed, load_encoder, open_embeddings, parse_encoder
from tests.commands import medprobe
from tests.environments import environment
from tests.ray_processes import RAY, kill_workers, start

@pytest.fixture(scope="module")
def ray_python(request):
    return environment(request.config.cache, "ray", RAY)


def total_bytes(folder, pattern):
    return sum(path.stat().st_size for path in folder.glob(pattern))


@pytest.mark.harness
@pytest.mark.timeout(900)
def test_killed_workers_do_not_change_vectors_or_pairs(ray_python, models, tmp_path):
    images, names = tmp_path / "images", {"med": "clip", "gen": "dinov2"}
    images.mkdir()
    rng = np.random.default_rng(0)
    for number in range(160):
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(images / f"{number}.png")
    for name, model in names.items():
        options = (
            "--encoder",
            f"transformers:{models / model}",
            "--name",
            name,
            "--batch-size",
            4,
            "--out",
            "ray",
        )
        process = start(ray_python, tmp_path, "curate", "embed", "images", *options, "--ray", "local")

        # Kill two workers once some batches are cached.
        kill_workers(
            process,
            "EncodingWorker",
            2,
            0,
            partial(total_bytes, tmp_path / "ray" / "cache", f"{name}-*/*"),
            60,
        )
        assert process.wait(300) == 0, (tmp_path / "said").read_text()
        embed(
            images,
            tmp_path / "alone",
            load_encoder(parse_encoder(f"transformers:{models / model}", name=name)),
        )
        actual, expected = (open_embeddings(tmp_path / folder, name) for folder in ("ray", "alone"))
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    command = [
        "curate",
        "pairs",
        "ray",
        "--med",
        "med",
        "--gen",
        "gen",
        "--med-at-least=-1",
        "--gen-at-most=1",
        "--out",
    ]
    medprobe(*command, "pairs-alone", cwd=tmp_path)
    process = start(ray_python, tmp_path, *command, "pairs-ray", "--ray", "local")
    assert process.wait(300) == 0, (tmp_path / "said").read_text()
    actual, expected = (pd.read_parquet(tmp_path / f"pairs-{name}" / "pairs.parquet") for name in ("ray", "alone"))
    pd.testing.assert_frame_equal(actual, expected)
    assert len(expected)
