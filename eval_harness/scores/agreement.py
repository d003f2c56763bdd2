"""Agreement between people who judged or answered the same items."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray


def krippendorff_alpha(ratings: NDArray[np.float64], level: Literal["nominal", "ordinal"]) -> float | None:
    """Compute Krippendorff's alpha.

    Args:
        ratings: shape (raters, items); NaN where a rater did not rate.
        level: level of measurement.

    Returns:
        At most 1; None if disagreement was impossible, because no item has two ratings or all
        ratings of such items are equal.
    """
    import krippendorff

    is_rated = ~np.isnan(ratings)
    is_shared = is_rated & (is_rated.sum(axis=0) > 1)
    if len(np.unique(ratings[is_shared])) < 2:
        return None
    return float(krippendorff.alpha(reliability_data=ratings, level_of_measurement=level))
