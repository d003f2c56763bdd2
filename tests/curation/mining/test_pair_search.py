"""The pair search against brute force in float64: every pair, no other, with ties at the threshold."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.mining import pair_search
from curation.mining.pair_mining import why_none
from curation.mining.pair_search import (
    HELD,
    MODES,
    EncoderVectors,
    Pairs,
    PairSearch,
    Thresholds,
    dots_here,
    dots_there,
    make_bound,
    pick_device,
    sample_pairs,
)
from dataset_builders.errors import BadInput
from tests.curation.mining.brute_force import any_search, brute, clustered, same
from tests.sampling import few

WAYS = {
    "as it chooses": {},
    "one by one": {"MANY": 1.0, "DENSE": 1.0},
    "products of both": {"MANY": 0.0, "DENSE": 1.0},
    "all in float64": {"MANY": 0.0, "DENSE": 0.0},
    "by the bound": {"SEEN": 2, "WIDTHS": (3, 9), "CANDIDATE": 1e-9, "MANY": 1.0, "DENSE": 1.0},
    "small tiles": {"TILE": {"cpu": 17}, "SEEN": 2, "WIDTHS": (2, 5), "CANDIDATE": 1.0},
}
"""How a search may go: each way must find the same."""


def search_all(med, gen, thresholds, ways=WAYS):
    """All pairs, found in each way."""
    found = []
    for way in ways.values():
        with pytest.MonkeyPatch.context() as patch:
            for name, value in way.items():
                patch.setattr(pair_search, name, value)
            found.append(Pairs.join(list(PairSearch(med, gen, thresholds, "cpu").all())))
    for other in found[1:]:
        same(found[0], tuple(vars(other).values()))
    return found[0]


@settings(max_examples=40, deadline=None)
@any_search
def test_the_search_equals_brute_force(seed, n, dims, spread, dtype, limits):
    rng = np.random.default_rng(seed)
    med, gen = (clustered(rng, n, d, spread, dtype) for d in dims)
    thresholds = Thresholds(*limits)
    same(search_all(med, gen, thresholds), brute(med, gen, thresholds))


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    d=st.integers(1, 70),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_pairs_are_decided_alike_on_a_processor_and_elsewhere(seed, n, d, dtype):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, d)).astype(dtype))
    i, j = (torch.from_numpy(rng.integers(0, n, 200)) for _ in range(2))
    np.testing.assert_allclose(dots_here(x, i, j), dots_there(x, i, j), rtol=1e-13, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.sampled_from([4, 16, 64]),
    n=st.integers(2, 120),
    at=st.integers(-16, 16),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_pairs_exactly_on_the_threshold_count(seed, d, n, at, dtype):
    """Vectors of +-1 have cosines k/d that are exact in binary, so that many pairs lie on the threshold itself."""
    rng = np.random.default_rng(seed)
    med = rng.choice([-1.0, 1.0], (n, d)).astype(dtype)
    gen = rng.choice([-1.0, 1.0], (n, d)).astype(dtype)
    threshold = at / 16
    i, j = np.triu_indices(n, 1)
    first, second = ((x.astype(int) @ x.astype(int).T)[i, j] / d for x in (med, gen))
    met = (first >= threshold) & (second <= -threshold)
    found = search_all(med, gen, Thresholds(med_at_least=threshold, gen_at_most=-threshold), {"": {}})
    assert found.i.tolist() == i[met].tolist()
    assert found.j.tolist() == j[met].tolist()
    assert (found.sim_med >= threshold).all()
    assert (found.sim_gen <= -threshold).all()


@pytest.mark.parametrize("threshold", [0.9, 0.75, 1 / 3, 0.5])
def test_a_tie_whose_cosine_is_no_binary_number_counts_too(threshold):
    """cos = threshold by construction, in directions whose entries float64 cannot hold: rounding decides nothing."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(200):
        a, b = np.linalg.qr(rng.standard_normal((24, 2)))[0].T
        rows += [a, threshold * a + np.sqrt(1 - threshold**2) * b]
    found = search_all(rows, rows, Thresholds(med_at_least=threshold, gen_at_most=threshold))
    assert {(2 * k, 2 * k + 1) for k in range(200)} <= set(zip(found.i.tolist(), found.j.tolist(), strict=True))
    assert (found.sim_med == threshold).all()


@pytest.mark.parametrize("offset", few([-3e-8, 0.0, 1e-10, 3e-8, -3e-7, -1e-10, 3e-7], 3))
def test_float32_rounding_decides_nothing(offset):
    """Pairs nearer to 0.9 than float32 can tell are decided by the float64 cosine of the stored float32 numbers."""
    rng = np.random.default_rng(5)
    a, b = np.linalg.qr(rng.standard_normal((500, 600, 2)))[0].transpose(2, 0, 1)
    target = 0.9 + offset
    rows = np.stack([a, target * a + np.sqrt(1 - target**2) * b], 1).reshape(1000, 600).astype(np.float32)
    thresholds = Thresholds(med_at_least=0.9)
    same(search_all(rows, rows, thresholds), brute(rows, rows, thresholds))


def test_many_tiles_and_a_wide_bound():
    rng = np.random.default_rng(0)
    med = clustered(rng, 2300, 200, 0.45, np.float32)
    gen = clustered(rng, 2300, 150, 2.0, np.float32)
    thresholds = MODES["confusing"]
    expected = brute(med, gen, thresholds)
    assert len(expected[0]) > 500
    same(search_all(med, gen, thresholds), expected)


def test_norms_do_not_matter():
    rng = np.random.default_rng(1)
    med, gen = clustered(rng, 90, 30, 0.2, np.float64), clustered(rng, 90, 30, 2.0, np.float64)
    expected = brute(med, gen, MODES["confusing"])
    assert len(expected[0])
    for scale in (1e-100, 1e-20, 1e-3, 1e20, 1e100):
        same(search_all(med * scale, gen * rng.uniform(0.1, 10, (90, 1)), MODES["confusing"]), expected)


def test_a_block_where_everything_matches_is_split(monkeypatch):
    monkeypatch.setattr("curation.mining.pair_search.HELD", 3000)
    rng = np.random.default_rng(2)
    med = clustered(rng, 260, 16, 0.0, np.float32)
    search = PairSearch(med, med, Thresholds(med_at_least=-1.0))
    parts = list(search.blocks(0, search.n))
    assert len(parts) > 4
    assert max(map(len, parts)) < HELD
    same(Pairs.join(parts), brute(med, med, search.thresholds))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), at_least=st.floats(0.0, 1.0), cone=st.floats(0.0, 4.0))
def test_the_bound_never_rules_out_a_match(seed, at_least, cone):
    rng = np.random.default_rng(seed)
    x = clustered(rng, 150, 300, 0.3, np.float32) + np.float32(cone)
    scale = 1 / np.linalg.norm(x.astype(np.float64), axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_search, "SEEN", 20)
        patch.setattr(pair_search, "CANDIDATE", 1e-9)
        patch.setattr(pair_search, "MANY", 1.0)
        bound = make_bound(EncoderVectors(x, "med", at_least, np.inf))
    assert bound is not None
    products = (bound.vectors @ bound.vectors.t()).numpy()
    unit = x * scale[:, None]
    assert (products[unit @ unit.T >= at_least] >= bound.floor).all()


def test_devices_that_are_not_there():
    for asked in ("gpu", "cuda:x", "mps", *([] if torch.cuda.is_available() else ["cuda", "cuda:0"]), "cuda:99"):
        with pytest.raises(BadInput, match="--device"):
            pick_device(asked)
    assert pick_device("cpu") == "cpu"


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("seed", range(3))
def test_where_no_pair_is_found_it_is_said_what_would_find_some(seed, mode):
    rng = np.random.default_rng(seed)
    cone = {"confusing": 0.0, "easy": 3.0, "reversed": 3.0}[mode]
    med, gen = (rng.standard_normal((60, d)) + cone for d in (40, 30))
    thresholds = MODES[mode]
    assert not len(search_all(med, gen, thresholds))
    *ranges, advice = why_none(PairSearch(med, gen, thresholds, "cpu"))
    assert [line.split(" ")[0] for line in ranges] == ["sim_med", "sim_gen"] and "1770 pairs" in ranges[0]
    options = re.findall(r"--(\S+) (\S+)", advice)
    assert options or mode == "reversed"
    for option, value in options:
        changed = Thresholds(**(vars(thresholds) | {option.replace("-", "_"): float(value)}))
        assert len(search_all(med, gen, changed)), (option, value)
    assert why_none(PairSearch(med[:1], gen[:1], thresholds, "cpu")) == ["1 images form no pair."]


def test_bad_embeddings_are_refused():
    good = np.ones((3, 4))
    for bad, says in (
        (np.zeros((3, 4)), "zero or not finite"),
        (np.full((3, 4), np.nan), "zero or not finite"),
        (np.ones(3), "shape"),
        (np.ones((2, 4)), "2 rows"),
        (np.array([["a"] * 4] * 3), "numbers"),
    ):
        with pytest.raises(BadInput, match=says):
            PairSearch(bad, good, MODES["confusing"])
    for beyond in (float("nan"), 1.5, -1e300):
        with pytest.raises(BadInput, match=r"--med-at-least .* between -1 and 1"):
            Thresholds(med_at_least=beyond)


def test_a_sample_is_uniform_where_pairs_are_drawn(monkeypatch):
    """Above the size where all pairs are gone through, each matching pair is drawn about equally often."""
    monkeypatch.setattr("curation.mining.pair_search.EFFORT", 60)
    monkeypatch.setattr("curation.mining.pair_search.DRAW", 64)
    rng = np.random.default_rng(6)
    med = rng.standard_normal((12, 5))
    search = PairSearch(med, med, Thresholds(med_at_most=0.2))
    matches = len(brute(med, med, search.thresholds)[0])
    counts: dict[tuple[int, int], int] = {}
    for seed in range(600):
        pairs = sample_pairs(search, 4, seed).pairs
        for pair in zip(pairs.i.tolist(), pairs.j.tolist(), strict=True):
            counts[pair] = counts.get(pair, 0) + 1
    expected = 600 * 4 / matches
    assert len(counts) == matches
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 2 * matches


@pytest.mark.parametrize("effort", [1, pair_search.EFFORT])
@pytest.mark.parametrize("count", [30, 10_000])
def test_a_sample_of_rare_pairs_comes_from_all_of_them(monkeypatch, count, effort):
    monkeypatch.setattr("curation.mining.pair_search.EFFORT", effort)
    monkeypatch.setattr("curation.mining.pair_search.DRAW", 8)
    rng = np.random.default_rng(8)
    med, gen = clustered(rng, 300, 20, 1.0, np.float32), clustered(rng, 300, 20, 1.0, np.float32)
    search = PairSearch(med, gen, MODES["reversed"])
    i, j, *_ = brute(med, gen, MODES["reversed"])
    matches = set(zip(i.tolist(), j.tolist(), strict=True))
    assert len(matches) > 60
    some = sample_pairs(search, count, seed=1)
    drawn = list(zip(some.pairs.i.tolist(), some.pairs.j.tolist(), strict=True))
    assert drawn == sorted(set(drawn)) and set(drawn) <= matches
    assert len(drawn) == min(count, len(matches))
    assert some.complete == (count > len(matches))
    again, other = (sample_pairs(search, count, seed).pairs for seed in (1, 2))
    assert (again.i.tolist(), again.j.tolist()) == (some.pairs.i.tolist(), some.pairs.j.tolist())
    assert count > len(matches) or (other.i.tolist(), other.j.tolist()) != (again.i.tolist(), again.j.tolist())
