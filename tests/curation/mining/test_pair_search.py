"""The pair search against brute force in float64: every pair, no other, with ties at the threshold."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.mining import pair_search
from curation.mining.pair_mining import suggest_thresholds
from curation.mining.pair_search import SEARCH_MODES, PairSearch, Thresholds, pick_device, sample_pairs
from dataset_builders.errors import BadInput
from tests.curation.mining.brute_force import any_search, brute, clustered, same


def search_all(med, gen, thresholds):
    """All pairs, whatever the size of the tiles."""
    found = []
    for rows, columns in ((pair_search.TILE_ROWS, pair_search.TILE_COLUMNS), (23, 51)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pair_search, "TILE_ROWS", rows)
            patch.setattr(pair_search, "TILE_COLUMNS", columns)
            search = PairSearch(med, gen, thresholds, "cpu")
            found.append(
                pd.concat([search.filter_pairs(*np.empty((2, 0), int)), *search.all_pairs()], ignore_index=True)
            )
    pd.testing.assert_frame_equal(*found)
    return found[0]


@settings(max_examples=40, deadline=None)
@any_search
def test_the_search_equals_brute_force(seed, n, dims, spread, dtype, limits):
    rng = np.random.default_rng(seed)
    med, gen = (clustered(rng, n, d, spread, dtype) for d in dims)
    thresholds = Thresholds(*limits)
    same(search_all(med, gen, thresholds), brute(med, gen, thresholds))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.sampled_from([4, 16, 64]), n=st.integers(2, 120), at=st.integers(-16, 16))
def test_pairs_exactly_on_the_threshold_count(seed, d, n, at):
    """Vectors of +-1 have cosines k/d that are exact in binary, so that many pairs lie on the threshold itself."""
    rng = np.random.default_rng(seed)
    med, gen = (rng.choice([-1.0, 1.0], (n, d)).astype(np.float32) for _ in range(2))
    threshold = at / 16
    i, j = np.triu_indices(n, 1)
    first, second = ((x.astype(int) @ x.astype(int).T)[i, j] / d for x in (med, gen))
    met = (first >= threshold) & (second <= -threshold)
    found = search_all(med, gen, Thresholds(med_at_least=threshold, gen_at_most=-threshold))
    assert (found.i.tolist(), found.j.tolist()) == (i[met].tolist(), j[met].tolist())
    assert (found.sim_med >= threshold).all() and (found.sim_gen <= -threshold).all()


@pytest.mark.parametrize("offset", [-3e-8, 0.0, 3e-7])
def test_float32_rounding_decides_nothing(offset):
    """Pairs nearer to 0.9 than float32 can tell are decided by the float64 cosine of the stored float32 numbers."""
    rng = np.random.default_rng(5)
    a, b = np.linalg.qr(rng.standard_normal((100, 600, 2)))[0].transpose(2, 0, 1)
    target = 0.9 + offset
    rows = np.stack([a, target * a + np.sqrt(1 - target**2) * b], 1).reshape(200, 600).astype(np.float32)
    thresholds = Thresholds(med_at_least=0.9)
    same(search_all(rows, rows, thresholds), brute(rows, rows, thresholds))


def test_devices_that_are_not_there():
    for asked in ("gpu", "cuda:x", *([] if torch.cuda.is_available() else ["cuda", "cuda:0"]), "cuda:99"):
        with pytest.raises(BadInput, match="--device"):
            pick_device(asked)


@pytest.mark.parametrize("mode", list(SEARCH_MODES))
def test_where_no_pair_is_found_it_is_said_what_would_find_some(mode):
    rng = np.random.default_rng(0)
    cone = {"confusing": 0.0, "easy": 3.0, "reversed": 3.0}[mode]
    med, gen = (rng.standard_normal((60, d)) + cone for d in (40, 30))
    thresholds = SEARCH_MODES[mode]
    assert not len(search_all(med, gen, thresholds))
    *ranges, advice = suggest_thresholds(PairSearch(med, gen, thresholds, "cpu"))
    assert [line.split(" ")[0] for line in ranges] == ["sim_med", "sim_gen"] and "1770 pairs" in ranges[0]
    options = re.findall(r"--(\S+) (\S+)", advice)
    assert options or mode == "reversed"
    for option, value in options:
        changed = Thresholds(**(vars(thresholds) | {option.replace("-", "_"): float(value)}))
        assert len(search_all(med, gen, changed)), (option, value)


def test_a_sample_is_uniform_where_pairs_are_drawn(monkeypatch):
    """Above the size where all pairs are gone through, each matching pair is drawn about equally often."""
    monkeypatch.setattr("curation.mining.pair_search.MAX_DRAWN_PAIRS", 60)
    monkeypatch.setattr("curation.mining.pair_search.PAIRS_PER_DRAW", 64)
    rng = np.random.default_rng(6)
    med = rng.standard_normal((12, 5))
    search = PairSearch(med, med, Thresholds(med_at_most=0.2))
    matches = len(brute(med, med, search.thresholds)[0])
    counts: dict[tuple[int, int], int] = {}
    for seed in range(200):
        pairs = sample_pairs(search, 4, seed)
        for pair in zip(pairs.i.tolist(), pairs.j.tolist(), strict=True):
            counts[pair] = counts.get(pair, 0) + 1
    expected = 200 * 4 / matches
    assert len(counts) == matches
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 2 * matches


@pytest.mark.parametrize("effort", [1, pair_search.MAX_DRAWN_PAIRS])
@pytest.mark.parametrize("count", [30, 10_000])
def test_a_sample_of_rare_pairs_comes_from_all_of_them(monkeypatch, count, effort):
    monkeypatch.setattr("curation.mining.pair_search.MAX_DRAWN_PAIRS", effort)
    monkeypatch.setattr("curation.mining.pair_search.PAIRS_PER_DRAW", 8)
    rng = np.random.default_rng(8)
    med, gen = clustered(rng, 300, 20, 1.0, np.float32), clustered(rng, 300, 20, 1.0, np.float32)
    search = PairSearch(med, gen, SEARCH_MODES["reversed"])
    i, j, *_ = brute(med, gen, SEARCH_MODES["reversed"])
    matches = set(zip(i.tolist(), j.tolist(), strict=True))
    assert len(matches) > 60
    some, again, other = (sample_pairs(search, count, seed) for seed in (1, 1, 2))
    drawn = list(zip(some.i.tolist(), some.j.tolist(), strict=True))
    assert drawn == sorted(set(drawn)) and set(drawn) <= matches
    assert len(drawn) == min(count, len(matches))
    assert (again.i.tolist(), again.j.tolist()) == (some.i.tolist(), some.j.tolist())
    assert count > len(matches) or (other.i.tolist(), other.j.tolist()) != (again.i.tolist(), again.j.tolist())
