"""The pair search equals brute force, ties included; on disk it resumes, sets aside and chooses.

Embeddings and pairs from Ray with killed workers equal those of a single process.
"""

import json
import re
from dataclasses import astuple
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from curation.mining import pair_mining, pair_search
from curation.mining.embedding import embed, load_encoder, open_embeddings, parse_encoder
from curation.mining.pair_mining import PairFilter, mine_pairs, suggest_thresholds, write_block
from curation.mining.pair_search import SEARCH_MODES, PairSearch, Thresholds, pick_device, sample_pairs
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder
from tests.commands import medprobe
from tests.environments import environment
from tests.helpers import refused
from tests.ray_processes import RAY, kill_workers, start


def brute_force_search(med, gen, thresholds):
    """Return all pairs that meet the thresholds, with their cosines."""

    def cosines(x):
        x = np.asarray(x, np.float32).astype(np.float64)  # as embeddings are stored
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return (x @ x.T)[np.triu_indices(len(x), 1)]

    i, j = np.triu_indices(len(med), 1)
    med_cosines, gen_cosines = cosines(med), cosines(gen)
    low, high, gen_low, gen_high = astuple(thresholds)

    # Same tolerance as `pair_search.TIE_TOLERANCE`.
    tie = 1e-12
    is_match = (
        (med_cosines >= low - tie)
        & (med_cosines <= high + tie)
        & (gen_cosines >= gen_low - tie)
        & (gen_cosines <= gen_high + tie)
    )
    return i[is_match], j[is_match], med_cosines[is_match], gen_cosines[is_match]


def assert_same_pairs(pairs, expected):
    """Assert that pairs equal those of `brute_force_search`."""
    i, j, sim_med, sim_gen = expected
    assert pairs.i.tolist() == i.tolist()
    assert pairs.j.tolist() == j.tolist()
    np.testing.assert_allclose(pairs.sim_med, sim_med, rtol=0, atol=1e-5)  # float32 products of up to 90 numbers
    np.testing.assert_allclose(pairs.sim_gen, sim_gen, rtol=0, atol=1e-5)


def clustered_embeddings(rng, n, d, spread, dtype):
    """Draw embeddings (n, d) around few centres, so that many pairs are similar, as real images
    are.
    """
    centres = rng.standard_normal((max(1, n // 20), d)) + 1.0
    return (centres[rng.integers(0, len(centres), n)] + spread * rng.standard_normal((n, d))).astype(dtype)


_cosine = st.one_of(st.floats(-1, 1), st.sampled_from([0.0, 0.5, 0.9, 1.0, -1.0]))
any_search = given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 140),
    dims=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    spread=st.sampled_from([0.0, 0.05, 0.5, 3.0]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    limits=st.tuples(_cosine, _cosine, _cosine, _cosine),
)
"""Strategy for an arbitrary search: seed, n, dims, spread, dtype and limits."""


def search_all(med, gen, thresholds):
    """Return all pairs, and assert that they do not depend on the tile size."""
    tables = []
    for rows, columns in ((pair_search.TILE_ROWS, pair_search.TILE_COLUMNS), (23, 51)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pair_search, "TILE_ROWS", rows)
            patch.setattr(pair_search, "TILE_COLUMNS", columns)
            search = PairSearch(med, gen, thresholds, "cpu")
            tables.append(
                pd.concat(
                    [search.filter_pairs(*np.empty((2, 0), int)), *search.all_pairs()],
                    ignore_index=True,
                )
            )

    # The tile size must change neither the pairs nor their order.
    pd.testing.assert_frame_equal(*tables)
    return tables[0]


@settings(max_examples=40, deadline=None)
@any_search
def test_the_search_equals_brute_force(seed, n, dims, spread, dtype, limits):
    rng = np.random.default_rng(seed)
    med, gen = (clustered_embeddings(rng, n, d, spread, dtype) for d in dims)
    thresholds = Thresholds(*limits)
    assert_same_pairs(search_all(med, gen, thresholds), brute_force_search(med, gen, thresholds))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.sampled_from([4, 16, 64]),
    n=st.integers(2, 120),
    sixteenths=st.integers(-16, 16),
)
def test_pairs_exactly_on_the_threshold_count(seed, d, n, sixteenths):
    """Vectors of +1 and -1 have cosines k/d, which are exact in binary, so many pairs are on the
    threshold.
    """
    rng = np.random.default_rng(seed)
    med, gen = (rng.choice([-1.0, 1.0], (n, d)).astype(np.float32) for _ in range(2))
    threshold = sixteenths / 16
    i, j = np.triu_indices(n, 1)
    med_cosines, gen_cosines = ((x.astype(int) @ x.astype(int).T)[i, j] / d for x in (med, gen))
    is_match = (med_cosines >= threshold) & (gen_cosines <= -threshold)
    pairs = search_all(med, gen, Thresholds(med_at_least=threshold, gen_at_most=-threshold))
    assert (pairs.i.tolist(), pairs.j.tolist()) == (i[is_match].tolist(), j[is_match].tolist())
    assert (pairs.sim_med >= threshold).all() and (pairs.sim_gen <= -threshold).all()


@pytest.mark.parametrize("offset", [-3e-8, 0.0, 3e-7])
def test_pairs_near_the_threshold_are_decided_in_float64(offset):
    """Cosines that float32 cannot distinguish from 0.9 are decided in float64."""
    rng = np.random.default_rng(5)

    # Orthonormal pairs, so that the exact cosine of each constructed pair is known.
    a, b = np.linalg.qr(rng.standard_normal((100, 600, 2)))[0].transpose(2, 0, 1)
    target = 0.9 + offset
    rows = np.stack([a, target * a + np.sqrt(1 - target**2) * b], 1).reshape(200, 600).astype(np.float32)
    thresholds = Thresholds(med_at_least=0.9)
    assert_same_pairs(search_all(rows, rows, thresholds), brute_force_search(rows, rows, thresholds))


def test_unavailable_devices_are_refused():
    for device in (
        "gpu",
        "cuda:x",
        *([] if torch.cuda.is_available() else ["cuda", "cuda:0"]),
        "cuda:99",
    ):
        assert "--device" in refused(pick_device, device)


@pytest.mark.parametrize("mode", list(SEARCH_MODES))
def test_a_search_without_pairs_suggests_thresholds_that_find_some(mode):
    rng = np.random.default_rng(0)
    # An offset makes all vectors similar, so that easy and reversed pairs do not exist.
    cone = {"confusing": 0.0, "easy": 3.0, "reversed": 3.0}[mode]
    med, gen = (rng.standard_normal((60, d)) + cone for d in (40, 30))
    thresholds = SEARCH_MODES[mode]
    assert not len(search_all(med, gen, thresholds))
    *ranges, advice = suggest_thresholds(PairSearch(med, gen, thresholds, "cpu"))
    assert [line.split(" ")[0] for line in ranges] == [
        "sim_med",
        "sim_gen",
    ] and "1770 pairs" in ranges[0]
    options = re.findall(r"--(\S+) (\S+)", advice)
    assert options or mode == "reversed"
    for option, value in options:
        changed = Thresholds(**(vars(thresholds) | {option.replace("-", "_"): float(value)}))
        assert len(search_all(med, gen, changed)), (option, value)


def test_random_draws_are_uniform_over_matching_pairs(monkeypatch):
    """Where random draws are used, each matching pair is drawn equally often."""
    monkeypatch.setattr("curation.mining.pair_search.MAX_DRAWN_PAIRS", 60)
    monkeypatch.setattr("curation.mining.pair_search.PAIRS_PER_DRAW", 64)
    rng = np.random.default_rng(6)
    med = rng.standard_normal((12, 5))
    search = PairSearch(med, med, Thresholds(med_at_most=0.2))
    matches = len(brute_force_search(med, med, search.thresholds)[0])
    counts: dict[tuple[int, int], int] = {}
    for seed in range(200):
        pairs = sample_pairs(search, 4, seed)
        for pair in zip(pairs.i.tolist(), pairs.j.tolist(), strict=True):
            counts[pair] = counts.get(pair, 0) + 1
    expected = 200 * 4 / matches
    assert len(counts) == matches

    # Chi-squared statistic; its expectation is about `matches`.
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 2 * matches


@pytest.mark.parametrize("max_drawn_pairs", [1, pair_search.MAX_DRAWN_PAIRS])
@pytest.mark.parametrize("count", [30, 10_000])
def test_rare_pairs_are_sampled_from_the_full_search(monkeypatch, count, max_drawn_pairs):
    monkeypatch.setattr("curation.mining.pair_search.MAX_DRAWN_PAIRS", max_drawn_pairs)
    monkeypatch.setattr("curation.mining.pair_search.PAIRS_PER_DRAW", 8)
    rng = np.random.default_rng(8)
    med, gen = (
        clustered_embeddings(rng, 300, 20, 1.0, np.float32),
        clustered_embeddings(rng, 300, 20, 1.0, np.float32),
    )
    search = PairSearch(med, gen, SEARCH_MODES["reversed"])
    i, j, *_ = brute_force_search(med, gen, SEARCH_MODES["reversed"])
    matches = set(zip(i.tolist(), j.tolist(), strict=True))
    assert len(matches) > 60
    sample, same_seed, other_seed = (sample_pairs(search, count, seed) for seed in (1, 1, 2))
    sampled_pairs = list(zip(sample.i.tolist(), sample.j.tolist(), strict=True))

    assert sampled_pairs == sorted(set(sampled_pairs)) and set(sampled_pairs) <= matches
    assert len(sampled_pairs) == min(count, len(matches))
    assert (same_seed.i.tolist(), same_seed.j.tolist()) == (sample.i.tolist(), sample.j.tolist())
    assert count > len(matches) or (other_seed.i.tolist(), other_seed.j.tolist()) != (
        same_seed.i.tolist(),
        same_seed.j.tolist(),
    )


THRESHOLDS = Thresholds(med_at_least=0.5, gen_at_most=0.9)


def make_search(n=400, seed=0):
    rng = np.random.default_rng(seed)
    med, gen = (rng.standard_normal((n, 12)) + 0.8 for _ in range(2))
    images = pd.DataFrame(
        {
            "image": [f"{k}.png" for k in range(n)],
            "hash": rng.integers(0, 2**63, n).astype(np.uint64),
            "group": ["" if k % 3 else f"patient {k // 30}" for k in range(n)],
            "short": np.arange(n) == 11,
        }
    )
    return PairSearch(med, gen, THRESHOLDS), images


def read_pairs(out, name="pairs"):
    return pd.read_parquet(out / f"{name}.parquet")


def test_every_pair_is_kept_or_set_aside_with_its_reason(tmp_path):
    search, images = make_search()
    images.loc[7, "hash"] = images.loc[8, "hash"] ^ np.uint64(0b111)  # three differing bits
    report = mine_pairs(search, images, tmp_path / "s", PairFilter(near_duplicate=6))
    kept_pairs, set_aside = read_pairs(tmp_path / "s"), read_pairs(tmp_path / "s", "set_aside")
    all_found = pd.concat([kept_pairs, set_aside]).sort_values(["i", "j"], ignore_index=True)
    expected = pd.concat(search.all_pairs(), ignore_index=True)
    pd.testing.assert_frame_equal(all_found[["i", "j", "sim_med", "sim_gen"]], expected)
    # Without a limit, pairs are in the order of their rows.
    assert kept_pairs[["i", "j"]].to_numpy().tolist() == sorted(kept_pairs[["i", "j"]].to_numpy().tolist())
    assert report["counts"]["found"] == len(expected)
    assert report["counts"]["kept"] == report["counts"]["chosen"] == len(kept_pairs)
    assert set_aside["reason"].value_counts().to_dict() == {
        reason: count
        for reason in ("same_group", "near_duplicate", "short_caption")
        if (count := report["counts"][reason])
    }
    assert (
        report["counts"]["short_caption"]
        and (set_aside[set_aside["reason"] == "short_caption"][["i", "j"]] == 11).any(axis=1).all()
    )
    assert not (kept_pairs[["i", "j"]] == 11).any(axis=None)

    # Every third image has a group: 30 consecutive images are one patient.
    same_patient = (
        (set_aside["i"] % 3 == 0) & (set_aside["j"] % 3 == 0) & (set_aside["i"] // 30 == set_aside["j"] // 30)
    )
    assert (same_patient == (set_aside["reason"] == "same_group")).all()
    assert (kept_pairs["image_1"] == kept_pairs["i"].map(lambda k: f"{k}.png")).all()


def test_a_folder_accepts_only_one_search(tmp_path):
    search, images = make_search()
    with lock_folder(tmp_path / "s", "search"), pytest.raises(BadInput, match="another process"):
        mine_pairs(search, images, tmp_path / "s", PairFilter())
    report = mine_pairs(search, images, tmp_path / "s", PairFilter(), sample=30, seed=5)
    assert report == mine_pairs(search, images, tmp_path / "s", PairFilter(), sample=30, seed=5)
    assert report == json.loads((tmp_path / "s" / "report.json").read_text())
    assert (report["sample"], report["counts"]["found"]) == (30, 30)
    # Blocks of another search must not be mixed in.
    other_search, _ = make_search(seed=1)
    assert "another search" in refused(mine_pairs, other_search, images, tmp_path / "s", PairFilter())
    (tmp_path / "mine").mkdir()
    # A user's own folder must not be overwritten.
    (tmp_path / "mine" / "thesis.txt").write_text("keep me")
    assert "not empty" in refused(mine_pairs, search, images, tmp_path / "mine", PairFilter())
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(("top", "cap"), [(50, None), (None, 2), (40, 3), (10**6, None)])
def test_pairs_are_chosen_by_gap_within_the_image_cap(tmp_path, monkeypatch, top, cap):
    monkeypatch.setattr(pair_mining, "PAIRS_PER_BATCH", 500)  # many ranges
    search, images = make_search(120)
    mine_pairs(search, images, tmp_path / "all", PairFilter())
    mine_pairs(search, images, tmp_path / "s", PairFilter(top=top, cap_per_image=cap))
    all_pairs = read_pairs(tmp_path / "all")
    all_pairs["gap"] = (all_pairs["sim_med"] - all_pairs["sim_gen"]).abs()
    expected, image_counts = [], dict.fromkeys(range(120), 0)
    # The greedy choice, one pair at a time.
    for pair in all_pairs.sort_values(["gap", "i", "j"], ascending=[False, True, True]).itertuples():
        if len(expected) < (top or 10**9) and max(image_counts[pair.i], image_counts[pair.j]) < (cap or 10**9):
            expected.append((pair.i, pair.j))

            image_counts[pair.i] += 1
            image_counts[pair.j] += 1
    chosen = read_pairs(tmp_path / "s")
    assert list(zip(chosen["i"], chosen["j"], strict=True)) == expected


class Killed(Exception):
    pass


def run_half_and_die(search, blocks, pending):
    """Write the second half of the blocks, in reverse order, and leave an unfinished file."""
    for first_row in reversed(pending[len(pending) // 2 :]):
        write_block(search, blocks, first_row)
        yield first_row
    (blocks / ".0000000000.parquet.1.part").write_text("torn")
    raise Killed


def test_a_killed_search_resumes_without_rewriting_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(pair_mining, "BLOCK_ROWS", 32)
    uninterrupted = mine_pairs(*make_search(), tmp_path / "whole", PairFilter())
    with pytest.raises(Killed):
        mine_pairs(*make_search(), tmp_path / "s", PairFilter(), search_blocks=run_half_and_die)
    assert not (tmp_path / "s" / "pairs.parquet").exists()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "blocks").glob("*.parquet")}
    assert mine_pairs(*make_search(), tmp_path / "s", PairFilter()) == uninterrupted
    assert not list(tmp_path.rglob("*.part"))
    # Finished blocks are not searched again.
    assert {path: path.stat().st_mtime_ns for path in written} == written
    for name in ("pairs", "set_aside"):
        pd.testing.assert_frame_equal(read_pairs(tmp_path / "s", name), read_pairs(tmp_path / "whole", name))


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
