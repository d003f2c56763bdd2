"""The pairs that a search must find, by the plainest code there is."""

import numpy as np


def brute(med, gen, thresholds):
    """All pairs that meet the thresholds, by the plainest code there is."""

    def cosines(x):
        x = np.asarray(x, np.float64)
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return (x @ x.T)[np.triu_indices(len(x), 1)]

    i, j = np.triu_indices(len(med), 1)
    first, second = cosines(med), cosines(gen)
    (low, high), (gen_low, gen_high) = thresholds.ranges()
    tie = 1e-12
    met = (first >= low - tie) & (first <= high + tie) & (second >= gen_low - tie) & (second <= gen_high + tie)
    return i[met], j[met], first[met], second[met]


def same(pairs, expected):
    """Assert that found pairs are those of `brute`."""
    i, j, first, second = expected
    assert pairs.i.tolist() == i.tolist()
    assert pairs.j.tolist() == j.tolist()
    np.testing.assert_allclose(pairs.sim_med, first, rtol=0, atol=2e-12)
    np.testing.assert_allclose(pairs.sim_gen, second, rtol=0, atol=2e-12)


def clustered(rng, n, d, spread, dtype):
    """Embeddings (n, d) around few centres: many pairs are alike, as with real images."""
    centres = rng.standard_normal((max(1, n // 20), d)) + 1.0
    return (centres[rng.integers(0, len(centres), n)] + spread * rng.standard_normal((n, d))).astype(dtype)
