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
    """Write the page `out`; return each encoder's median cosine over the pairs. Raises BadInput where there are
    no pairs, or they are of other images."""
    file = pairs / "pairs.parquet"
    if not file.is_file() or not pq.read_metadata(file).num_rows:
        raise BadInput(f"{pairs}: holds no pairs. Find some with `medprobe curate pairs`.")
    table = pq.read_table(file, columns=["i", "j"])
    rows = np.linspace(0, len(table) - 1, min(len(table), AT_MOST)).astype(np.int64)
    i, j = (torch.from_numpy(table.column(name).to_numpy()[rows]) for name in ("i", "j"))
    drawn, medians = [], {}
    for name in encoders:
        vectors = open_embeddings(embeddings, name)
        if len(vectors) <= int(j.max()):
            raise BadInput(
                f"{embeddings}: has fewer images than {pairs} was searched over. Give the folder of that search."
            )
        cosines = EncoderVectors(vectors).cosines(i, j).numpy()
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
