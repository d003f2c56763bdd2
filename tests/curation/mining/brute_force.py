"""The pairs that a search must find, by the plainest code there is."""

from dataclasses import astuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st


def brute(med, gen, thresholds):
    """All pairs that meet the thresholds, by the plainest code there is."""

    def cosines(x):
        x = np.asarray(x, np.float32).astype(np.float64)  # as embeddings are stored
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return (x @ x.T)[np.triu_indices(len(x), 1)]

    i, j = np.triu_indices(len(med), 1)
    first, second = cosines(med), cosines(gen)
    low, high, gen_low, gen_high = astuple(thresholds)
    tie = 1e-12
    met = (first >= low - tie) & (first <= high + tie) & (second >= gen_low - tie) & (second <= gen_high + tie)
    return i[met], j[met], first[met], second[met]


def same(pairs, expected):
    """Assert that found pairs are those of `brute`."""
    i, j, first, second = expected
    assert pairs.i.tolist() == i.tolist()
    assert pairs.j.tolist() == j.tolist()
    np.testing.assert_allclose(pairs.sim_med, first, rtol=0, atol=1e-5)  # float32, of at most 90 numbers
    np.testing.assert_allclose(pairs.sim_gen, second, rtol=0, atol=1e-5)


def clustered(rng, n, d, spread, dtype):
    """Embeddings (n, d) around few centres: many pairs are alike, as with real images."""
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
"""The arguments of a test of any search: seed, n, dims, spread, dtype and limits."""
