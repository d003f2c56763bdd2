"""Grey values of scanners to 8-bit pictures: windows for CT, percentiles for what has no scale.

See also: DICOM's own rescaling and VOI (`dicom_pixels.py`).
"""

from __future__ import annotations

import numpy as np

from dataset_builders.terms import window_of

PRESETS: dict[str, tuple[float, float]] = {
    "soft tissue": (40.0, 400.0),
    "lung": (-600.0, 1500.0),
    "bone": (400.0, 1800.0),
    "brain": (40.0, 80.0),
    "liver": (60.0, 160.0),
    "mediastinum": (50.0, 350.0),
}
"""Centre and width in Hounsfield units, as they are customary at the viewing station."""
PERCENTILES = (0.5, 99.5)


def to_grey(values: np.ndarray, window: tuple[float, float] | None = None) -> np.ndarray:
    """Values of any shape -> uint8: the window (centre, width) from black to white, by DICOM PS3.3 C.11.2.1.3.2 (linear exact);
    without one, from the 0.5th to the 99.5th percentile of the finite values."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    if window is None:
        low, high = np.percentile(values[finite], PERCENTILES)
        if high <= low:
            low, high = float(values[finite].min()), float(values[finite].max())
    else:
        low, high = window[0] - window[1] / 2, window[0] + window[1] / 2
    if high <= low:
        return np.zeros(values.shape, np.uint8)
    scaled = np.clip((np.where(finite, values, low).astype(np.float64) - low) / (high - low), 0, 1)
    grey: np.ndarray = (scaled * 255).round().astype(np.uint8)
    return grey


def to_rgb(grey: np.ndarray) -> np.ndarray:
    """(height, width) uint8 -> (height, width, 3)."""
    return np.repeat(grey[..., None], 3, axis=2)


def window_for(label: str, given: str | tuple[float, float] | None) -> tuple[float, float]:
    """The window in which a label is shown on CT: the dataset's own, or by what the label names (`terms.csv`)."""
    if isinstance(given, str):
        return PRESETS[given]
    if given is not None:
        return given
    return PRESETS[window_of(label)]
