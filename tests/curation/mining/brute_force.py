"""Reference pair search, by brute force in float64."""

from dataclasses import astuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st


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
