"""All pairs of images that meet thresholds, on the device that is there: the entry point of the pair search.

See also: the search on a processor (`confusing_pairs.py`) and on a GPU (`device_search.py`), which find the same pairs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from curation.mining.confusing_pairs import Pairs, PairSearch, Thresholds
from curation.mining.device_search import DeviceSearch
from dataset_builders.errors import BadInput


def pick_device(name: str) -> str:
    """The torch device for `--device auto | cpu | cuda | cuda:1`. Raises BadInput for one that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise BadInput(f"--device {name}: give auto, cpu or cuda.")
    if kind == "cuda" and not (torch.cuda.is_available() and int(number or 0) < torch.cuda.device_count()):
        raise BadInput(f"--device {name}: there is no such GPU here. Give --device cpu.")
    return name


def make_search(med: np.ndarray, gen: np.ndarray, thresholds: Thresholds, device: str = "auto") -> PairSearch:
    """The quickest search on a device: `PairSearch` on a processor, `DeviceSearch` on a GPU. Both find the same pairs."""
    device = pick_device(device)
    return PairSearch(med, gen, thresholds) if device == "cpu" else DeviceSearch(med, gen, thresholds, device)


def find_pairs(
    med: np.ndarray, gen: np.ndarray, med_at_least: float = 0.9, gen_at_most: float = 0.75, device: str = "auto"
) -> pd.DataFrame:
    """Every confusing pair among n images: cosine(med) >= med_at_least and cosine(gen) <= gen_at_most, decided in
    float64.

    med: (n, d) and gen: (n, e) embeddings, row k of both for image k; they need not have unit length. Returns the
    columns i, j (int64, i < j) and sim_med, sim_gen (float64), sorted by (i, j). Raises BadInput for rows that are zero
    or not finite, and for shapes that do not fit. `device`: auto (a GPU if there is one), cpu, cuda; it changes no pair.
    Source: MediConfusion, section 2.1.
    """
    search = make_search(med, gen, Thresholds(med_at_least=med_at_least, gen_at_most=gen_at_most), device)
    firsts = range(0, search.n, search.step)
    return Pairs.join(
        [part for first in firsts for part in search.blocks(first, min(search.n, first + search.step))]
    ).frame()
