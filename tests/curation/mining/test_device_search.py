"""The GPU's search, run on the processor: the same blocks, products and decisions, against brute force in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.mining import device_search
from curation.mining.confusing_pairs import MODES, Pairs, PairSearch, Thresholds
from curation.mining.device_search import DeviceSearch, _bfloat16
from curation.mining.pair_search import find_pairs, make_search, pick_device
from dataset_builders.errors import BadInput
from tests.curation.mining.brute_force import any_search, brute, clustered, same

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def search_all(med, gen, thresholds, device="cpu"):
    search = DeviceSearch(med, gen, thresholds, device)
    step = min(search.step, 64)  # many tiles, with edges on and off the diagonal
    return Pairs.join([part for at in range(0, search.n, step) for part in search.blocks(at, min(search.n, at + step))])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setitem(device_search.ENTRIES, "cpu", 3000)
    monkeypatch.setitem(device_search.DECIDED, "cpu", 700)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=40, deadline=None)
@any_search
def test_it_equals_brute_force(device, seed, n, dims, spread, dtype, limits):
    rng = np.random.default_rng(seed)
    med, gen = (clustered(rng, n, d, spread, dtype) for d in dims)
    thresholds = Thresholds(*limits)
    same(search_all(med, gen, thresholds, device), brute(med, gen, thresholds))


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.sampled_from([4, 16, 64]), n=st.integers(2, 120), at=st.integers(-16, 16))
def test_pairs_exactly_on_the_threshold_count(device, seed, d, n, at):
    """Vectors of +-1 have cosines k/d that are exact in binary, so that many pairs lie on the threshold itself."""
    rng = np.random.default_rng(seed)
    med, gen = (rng.choice([-1.0, 1.0], (n, d)).astype(np.float32) for _ in range(2))
    i, j = np.triu_indices(n, 1)
    first, second = ((x.astype(int) @ x.astype(int).T)[i, j] / d for x in (med, gen))
    met = (first >= at / 16) & (second <= -at / 16)
    found = search_all(med, gen, Thresholds(med_at_least=at / 16, gen_at_most=-at / 16), device)
    assert (found.i.tolist(), found.j.tolist()) == (i[met].tolist(), j[met].tolist())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("offset", [-3e-4, -3e-7, -3e-8, -1e-10, 0.0, 1e-13, 1e-10, 3e-8, 3e-4])
def test_neither_bfloat16_nor_float32_rounding_decides(device, offset):
    rng = np.random.default_rng(5)
    a, b = np.linalg.qr(rng.standard_normal((400, 600, 2)))[0].transpose(2, 0, 1)
    target = 0.9 + offset
    rows = np.stack([a, target * a + np.sqrt(1 - target**2) * b], 1).reshape(800, 600)
    thresholds = Thresholds(med_at_least=0.9)
    for kind in (np.float32, np.float64):
        same(
            search_all(rows.astype(kind), rows.astype(kind), thresholds, device),
            brute(rows.astype(kind), rows.astype(kind), thresholds),
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", list(MODES))
def test_it_finds_what_the_processors_search_finds(device, mode, monkeypatch):
    monkeypatch.setitem(device_search.ENTRIES, "cpu", 2**18)
    rng = np.random.default_rng(0)
    med, gen = clustered(rng, 900, 200, 0.45, np.float32), clustered(rng, 900, 150, 2.0, np.float32)
    search = PairSearch(med, gen, MODES[mode])
    expected = Pairs.join(list(search.blocks(0, search.n)))
    found = search_all(med, gen, MODES[mode], device)
    assert len(expected) > 0 or mode != "confusing"
    same(found, (expected.i, expected.j, expected.sim_med, expected.sim_gen))


def test_a_block_where_everything_matches_is_split(monkeypatch):
    monkeypatch.setattr(device_search, "HELD", 3000)
    rng = np.random.default_rng(2)
    med = clustered(rng, 260, 16, 0.0, np.float32)
    search = DeviceSearch(med, med, Thresholds(med_at_least=-1.0), "cpu")
    parts = list(search.blocks(0, search.n))
    assert len(parts) > 4
    same(Pairs.join(parts), brute(med, med, search.thresholds))


@given(st.floats(-2, 2))
def test_limits_are_rounded_outwards(value):
    assert _bfloat16(value, down=True) <= value <= _bfloat16(value, down=False)


def test_devices_that_are_not_there():
    for asked in ("gpu", "cuda:x", "mps", *([] if torch.cuda.is_available() else ["cuda", "cuda:0"]), "cuda:99"):
        with pytest.raises(BadInput, match="--device"):
            pick_device(asked)
    assert pick_device("cpu") == "cpu"
    with pytest.raises(BadInput, match="--device tpu"):
        find_pairs(np.ones((2, 3)), np.ones((2, 3)), device="tpu")
    search = make_search(np.ones((2, 3)), np.ones((2, 3)), MODES["confusing"], "cpu")
    assert type(search) is PairSearch


def test_bad_embeddings_are_refused_here_too():
    for bad in (np.zeros((3, 4)), np.full((3, 4), np.nan)):
        with pytest.raises(BadInput, match="zero or not finite"):
            DeviceSearch(bad, np.ones((3, 4)), MODES["confusing"], "cpu")
