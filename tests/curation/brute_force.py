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
