"""A page per dataset with nine of its pictures, marked and labelled as they were read: a person sees at a glance whether a mask is
inverted, a box shifted, or a label another one's. Private, since nobody has looked at these pictures before."""

from __future__ import annotations

import base64
import random
import shutil
from collections import defaultdict
from html import escape
from pathlib import Path

from curation.gmai.items import PICTURES, SHEETS, Item
from curation.gmai.overlay import shown_png
from curation.gmai.sources import OF_KIND, Sources
from dataset_builders.files import replace_file
from eval_harness.records.names import storable

COUNT = 9
PAGE = """<!doctype html><meta charset="utf-8"><title>{name}</title>
<style>body {{ font: 15px system-ui; display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; margin: 1rem }}
h1 {{ grid-column: 1 / -1; margin: 0; font-size: 1.2rem }} figure {{ margin: 0 }} img {{ width: 100%; background: #000 }}</style>
<h1>{name}: is each label where its picture is marked?</h1>
"""


def write_sheets(items: list[Item], private: Path, sources: Sources) -> None:
    """Write `private/sheets/DATASET.html` for each dataset, of as many different labels as possible; the same pictures in every run."""
    shutil.rmtree(private / SHEETS, ignore_errors=True)
    (private / SHEETS).mkdir()
    for dataset in sources.datasets:
        by_label: dict[str, list[Item]] = defaultdict(list)
        for item in sorted((item for item in items if item.dataset == dataset.name), key=lambda item: item.item):
            by_label[item.label].append(item)
        drawn = random.Random(sources.seed)
        turns = [(number, drawn.random(), item) for own in by_label.values() for number, item in enumerate(own)]
        figures = []
        for _, _, item in sorted(turns, key=lambda turn: turn[:2])[:COUNT]:
            granularity = OF_KIND[item.kind][-1]
            png = shown_png(item.picture, item.mask, private / PICTURES, granularity, item.box, sources.overlay)
            caption = f"{item.label} ({granularity})"
            figures.append(
                f'<figure><img alt="" src="data:image/png;base64,{base64.b64encode(png).decode("ascii")}">'
                f"<figcaption>{escape(caption)}</figcaption></figure>\n"
            )
        page = PAGE.format(name=escape(dataset.name)) + "".join(figures)
        replace_file(private / SHEETS / f"{dataset.name}.html", storable(page).encode())
