"""Only each image's pairs with the largest gaps: chosen block by block, the same as from all pairs."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.mining import pair_mining
from curation.mining.pair_mining import NONE, Choice, Images, Largest, gaps_of, largest_of, mine, reaching
from curation.mining.pair_search import Pairs, PairSearch, Thresholds
from dataset_builders.errors import BadInput


def kept_by_brute_force(pairs, n, k):
    """Positions of the pairs whose gap is among the k largest of either image, ties included."""
    gap = gaps_of(pairs)
    kept = set()
    for image in range(n):
        mine = np.flatnonzero((pairs.i == image) | (pairs.j == image))
        least = np.sort(gap[mine])[-k] if len(mine) >= k else NONE
        kept |= {int(at) for at in mine if gap[at] >= least}
    return sorted(kept)


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
def test_blocks_drop_only_what_no_image_keeps(n, k, blocks, seed):
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(n, 1)
    there = rng.random(len(i)) < 0.7
    i, j = i[there], j[there]
    sims = rng.integers(0, 4, (2, len(i))) / 4  # few values, so that gaps tie
    pairs = Pairs(i, j, sims[0], sims[1])
    known, seen = Largest(n, k), []
    for part in np.array_split(np.arange(len(pairs)), blocks):
        pieces = [pairs.take(piece) for piece in np.array_split(part, 3)]
        seen.append(largest_of(pieces, k, known.least))
        known.add(seen[-1])
    kept = reaching(Pairs.join(seen), known.least)
    expected = pairs.take(np.array(kept_by_brute_force(pairs, n, k), np.int64))
    assert sorted(zip(kept.i.tolist(), kept.j.tolist(), strict=True)) == list(
        zip(expected.i.tolist(), expected.j.tolist(), strict=True)
    )


@pytest.fixture
def search():
    rng = np.random.default_rng(1)
    med, gen = (rng.standard_normal((300, 8)).astype(np.float32) for _ in range(2))
    hashes = rng.integers(0, 2**64, 300, dtype=np.uint64)
    hashes[7] = hashes[3]
    groups = np.array([f"p{row // 4}" if row % 3 else "" for row in range(300)], object)
    names = np.array([f"{row}.png" for row in range(300)], object)
    return PairSearch(med, gen, Thresholds(med_at_least=0.2, gen_at_most=0.3)), Images(
        names, hashes, groups, np.arange(300)
    )


class Killed(Exception):
    pass


def dies(writer, blocks, todo):
    """Writes half of the blocks, the last ones first, and leaves another half written."""
    for first in reversed(todo[len(todo) // 2 :]):
        writer.write(blocks, first)
        yield first
    (blocks / ".0000000000.parquet.1.part").write_text("torn")
    raise Killed


@pytest.mark.parametrize("choice", [Choice(), Choice(per_image=3)])
def test_a_search_goes_on_where_it_was_killed_and_writes_no_block_again(tmp_path, monkeypatch, search, choice):
    monkeypatch.setattr(pair_mining, "BLOCK_ROWS", 32)
    whole = mine(*search, tmp_path / "whole", choice)
    with pytest.raises(Killed):
        mine(*search, tmp_path / "s", choice, run=dies)
    assert not (tmp_path / "s" / "pairs.parquet").exists()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "blocks").glob("*.parquet")}
    assert mine(*search, tmp_path / "s", choice) == whole
    assert not list(tmp_path.rglob("*.part"))
    assert {path: path.stat().st_mtime_ns for path in written} == written
    for name in ("pairs", "set_aside"):
        ours, alone = (pd.read_parquet(tmp_path / folder / f"{name}.parquet") for folder in ("s", "whole"))
        pd.testing.assert_frame_equal(ours, alone)


def test_a_search_keeps_each_image_s_largest(tmp_path, monkeypatch, search):
    monkeypatch.setattr(pair_mining, "BLOCK_ROWS", 32)
    everything = mine(*search, tmp_path / "all", Choice())
    listed = pd.read_parquet(tmp_path / "all" / "pairs.parquet")
    pairs = Pairs(*(listed[name].to_numpy() for name in ("i", "j", "sim_med", "sim_gen")))
    expected = listed.iloc[kept_by_brute_force(pairs, 300, 3)].reset_index(drop=True)
    report = mine(*search, tmp_path / "few", Choice(per_image=3))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "few" / "pairs.parquet"), expected)
    for name in ("found", "near_duplicate", "same_group", "kept"):
        assert report["counts"][name] == everything["counts"][name]
    held = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "few" / "blocks").iterdir())
    assert report["counts"]["chosen"] == len(expected) < held < len(listed)
    with pytest.raises(BadInput, match="another search"):
        mine(*search, tmp_path / "few", Choice(per_image=4))


@pytest.mark.parametrize(
    ("choice", "sample"), [({"per_image": 3, "top": 4}, None), ({"per_image": 0}, None), ({"per_image": 3}, 5)]
)
def test_what_does_not_go_together_is_refused(tmp_path, search, choice, sample):
    with pytest.raises(BadInput, match="--per-image"):
        mine(*search, tmp_path / "s", Choice(**choice), sample)
