"""A pair search on disk: it resumes, sets pairs aside with counts, and chooses the largest gaps."""

import json

import numpy as np
import pandas as pd
import pytest

from curation.mining import pair_mining
from curation.mining.pair_mining import PairFilter, mine_pairs, write_block
from curation.mining.pair_search import PairSearch, Thresholds
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder
from tests.helpers import refused

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
