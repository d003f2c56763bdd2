"""p-values of differences between models by a variance that all models show together. What the comparison with the best stands on.

See also: the test of a single pair (`comparisons.py`), the ranks (`ranks.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from eval_harness.scores.outcomes import Outcomes

Floats = NDArray[np.float64]


def pooled_p_values(outcomes: Outcomes) -> Floats:
    """Two-sided, uncorrected p-values (M, M) of "these two models do equally well", by Student's t with a pooled variance.

    The sign-flip test takes the variance of a difference from the pair alone: sum d^2 over clusters. Where a model is better in large
    clusters and worse in small ones, that sum is smallest exactly when its large clusters come out badly, so that such a model is found to
    be worse more often than the level allows. The comparisons with a control (Dunnett 1955) and with the best (Hsu 1984) pool the variance
    over all treatments instead. Here the variance of a pair is the smaller of two, neither of which its own large clusters decide:

    - s_a (1 - s_a) + s_b (1 - s_b), s the shares, times what the variance over clusters is of s (1 - s) in all models together;
    - sum d^2 / w, w the weight of a cluster, times what sum d^2 is of it in all pairs together. It is the smaller one of models that
      answer nearly alike.

    Degrees of freedom are Satterthwaite's: (M - 1) (sum v)^2 / sum v^2, v the variance between models of what a cluster adds to a share.
    Of two models, and where every cluster is one 0/1 outcome, there is nothing to pool: every p-value is 0, the test of the pair decides.
    """
    top, base = outcomes.by_cluster
    models = len(top)
    if outcomes.binary or models < 3:
        return np.zeros((models, models))
    base = base[:1] if outcomes.paired else base
    total = np.maximum(base.sum(axis=1, keepdims=True, dtype=np.float64), 1e-30)
    share = top.sum(axis=1, dtype=np.float64) / total[:, 0]
    added, weight = top / total.astype(np.float32), base / total.astype(np.float32)
    if not outcomes.paired:
        added -= share[:, None].astype(np.float32) * weight
    added -= added.mean(axis=0)
    between = np.square(added).sum(axis=0, dtype=np.float64) / (models - 1)
    whole, single = float(between.sum()), np.clip(share * (1 - share), 0.0, None)
    added /= np.sqrt(np.maximum(weight.mean(axis=0), 1e-30))
    gram = (added @ added.T).astype(np.float64)
    squares = np.diag(gram)[:, None] + np.diag(gram)[None, :] - 2 * gram
    with np.errstate(invalid="ignore", divide="ignore"):
        by_share = (single[:, None] + single[None, :]) * (whole / single.mean())
        by_pair = squares * (whole / (np.trace(gram) / (models - 1)))
        df = (models - 1) * whole**2 / np.square(between).sum()
        apart = np.abs(share[:, None] - share[None, :])
        z = np.where(apart > 0, apart / np.sqrt(np.maximum(np.fmin(by_share, by_pair), 0.0)), 0.0)
    return np.asarray(2 * special.stdtr(max(1.0, df), -z))
