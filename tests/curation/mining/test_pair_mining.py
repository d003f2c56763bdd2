"""A search as files: it resumes, it sets near-duplicates and groups aside with counts, it chooses the largest gaps."""

import json

import numpy as np
import pandas as pd
import pytest

from curation.mining import pair_mining
from curation.mining.pair_mining import PairFilter, mine_pairs, write_block
from curation.mining.pair_search import PairSearch, Thresholds
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder

ASKED = Thresholds(med_at_least=0.5, gen_at_most=0.9)


def made(n=400, seed=0):
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
    return PairSearch(med, gen, ASKED), images


def read(out, name="pairs"):
    return pd.read_parquet(out / f"{name}.parquet")


def test_every_pair_is_kept_or_set_aside_with_its_reason(tmp_path):
    search, images = made()
    images.loc[7, "hash"] = images.loc[8, "hash"] ^ np.uint64(0b111)  # three bits apart
    report = mine_pairs(search, images, tmp_path / "s", PairFilter(near_duplicate=6))
    kept, aside = read(tmp_path / "s"), read(tmp_path / "s", "set_aside")
    found = pd.concat([kept, aside]).sort_values(["i", "j"], ignore_index=True)
    whole = pd.concat(search.all_pairs(), ignore_index=True)
    pd.testing.assert_frame_equal(found[["i", "j", "sim_med", "sim_gen"]], whole)
    assert kept[["i", "j"]].to_numpy().tolist() == sorted(kept[["i", "j"]].to_numpy().tolist())
    assert report["counts"]["found"] == len(whole)
    assert report["counts"]["kept"] == report["counts"]["chosen"] == len(kept)
    assert aside["reason"].value_counts().to_dict() == {
        reason: count
        for reason in ("same_group", "near_duplicate", "short_caption")
        if (count := report["counts"][reason])
    }
    assert (
        report["counts"]["short_caption"]
        and (aside[aside["reason"] == "short_caption"][["i", "j"]] == 11).any(axis=1).all()
    )
    assert not (kept[["i", "j"]] == 11).any(axis=None)
    same_patient = (aside["i"] % 3 == 0) & (aside["j"] % 3 == 0) & (aside["i"] // 30 == aside["j"] // 30)
    assert (same_patient == (aside["reason"] == "same_group")).all()
    assert (kept["image_1"] == kept["i"].map(lambda k: f"{k}.png")).all()


def test_no_two_searches_are_mixed_in_one_folder(tmp_path):
    search, images = made()
    with lock_folder(tmp_path / "s", "search"), pytest.raises(BadInput, match="another process"):
        mine_pairs(search, images, tmp_path / "s", PairFilter())
    report = mine_pairs(search, images, tmp_path / "s", PairFilter(), sample=30, seed=5)
    assert report == mine_pairs(search, images, tmp_path / "s", PairFilter(), sample=30, seed=5)
    assert report == json.loads((tmp_path / "s" / "report.json").read_text())
    assert (report["sample"], report["counts"]["found"]) == (30, 30)
    other, _ = made(seed=1)
    with pytest.raises(BadInput, match="another search"):
        mine_pairs(other, images, tmp_path / "s", PairFilter())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep me")
    with pytest.raises(BadInput, match="not empty"):
        mine_pairs(search, images, tmp_path / "mine", PairFilter())
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(("top", "cap"), [(50, None), (None, 2), (40, 3), (10**6, None)])
def test_the_largest_gaps_come_first_and_no_image_too_often(tmp_path, monkeypatch, top, cap):
    monkeypatch.setattr(pair_mining, "PAIRS_PER_BATCH", 500)  # many ranges
    search, images = made(120)
    mine_pairs(search, images, tmp_path / "all", PairFilter())
    mine_pairs(search, images, tmp_path / "s", PairFilter(top=top, cap_per_image=cap))
    every = read(tmp_path / "all")
    every["gap"] = (every["sim_med"] - every["sim_gen"]).abs()
    expected, used = [], dict.fromkeys(range(120), 0)
    for pair in every.sort_values(["gap", "i", "j"], ascending=[False, True, True]).itertuples():
        if len(expected) < (top or 10**9) and max(used[pair.i], used[pair.j]) < (cap or 10**9):
            expected.append((pair.i, pair.j))
            used[pair.i] += 1
            used[pair.j] += 1
    chosen = read(tmp_path / "s")
    assert list(zip(chosen["i"], chosen["j"], strict=True)) == expected


class Killed(Exception):
    pass


def dies(search, blocks, todo):
    """Writes half of the blocks, the last ones first, and leaves another half written."""
    for first in reversed(todo[len(todo) // 2 :]):
        write_block(search, blocks, first)
        yield first
    (blocks / ".0000000000.parquet.1.part").write_text("torn")
    raise Killed


def test_a_search_goes_on_where_it_was_killed_and_writes_no_block_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pair_mining, "BLOCK_ROWS", 32)
    whole = mine_pairs(*made(), tmp_path / "whole", PairFilter())
    with pytest.raises(Killed):
        mine_pairs(*made(), tmp_path / "s", PairFilter(), search_blocks=dies)
    assert not (tmp_path / "s" / "pairs.parquet").exists()
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "blocks").glob("*.parquet")}
    assert mine_pairs(*made(), tmp_path / "s", PairFilter()) == whole
    assert not list(tmp_path.rglob("*.part"))
    assert {path: path.stat().st_mtime_ns for path in written} == written
    for name in ("pairs", "set_aside"):
        pd.testing.assert_frame_equal(read(tmp_path / "s", name), read(tmp_path / "whole", name))
