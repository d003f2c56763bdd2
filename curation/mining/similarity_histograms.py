"""Similarity of the found pairs to other encoders: histograms of their cosines, as MediConfusion's figure 8
(appendix F).

Appendix F averages over the patch tokens: embed with `--pooling mean` to follow it. See also: the search
(`pair_search.py`).
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

from curation.mining.embedding import open_embeddings
from curation.mining.pair_search import EncoderVectors
from curation.report.quality_page import STYLE, histogram
from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file

AT_MOST = 1_000_000
"""Pairs drawn from; a longer list is thinned evenly."""


def write_histograms(pairs: Path, embeddings: Path, encoders: list[str], out: Path) -> dict[str, float]:
    """Write the page `out`; returns each encoder's median cosine over the pairs. Raises BadInput for folders that do
    not fit together."""
    file = pairs / "pairs.parquet"
    if not file.is_file():
        raise BadInput(f"{pairs}: holds no pairs.parquet. Make it with `medprobe curate pairs`.")
    table = pq.read_table(file, columns=["i", "j"])
    if not len(table):
        raise BadInput(f"{file}: holds no pairs, so there is nothing to draw. Search with other thresholds.")
    rows = np.linspace(0, len(table) - 1, min(len(table), AT_MOST)).astype(np.int64)
    i, j = (table.column(name).to_numpy()[rows] for name in ("i", "j"))
    drawn, medians = [], {}
    for name in encoders:
        side = EncoderVectors(open_embeddings(embeddings, name), name, -np.inf, np.inf)
        last = int(max(i.max(), j.max()))
        if last >= len(side.x):
            raise BadInput(
                f"{embeddings}: has {len(side.x)} images, but {file} names image {last}. Give the folder it was found in."
            )
        cosines = side.listed(torch.from_numpy(i), torch.from_numpy(j))[0].numpy()
        medians[name] = float(np.median(cosines))
        drawn.append(f"<h2>{escape(name)}</h2>{histogram(cosines.tolist())}")
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Similarity of the pairs</title><style>{STYLE}</style></head>"
    )
    title = f"<h1>Similarity of {len(rows)} pairs</h1><p>Cosine of the two images of each pair, by encoder.</p>"
    body = f"<body>{title}{''.join(drawn)}</body></html>\n"
    replace_file(out, (head + body).encode())
    return medians
