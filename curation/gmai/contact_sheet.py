"""A page per dataset with nine of its pictures, marked and labelled as they were read: a person sees at a glance whether a mask is
inverted, a box shifted, or a label another one's. Private: these pictures have not been reviewed yet."""

from __future__ import annotations

import base64
import shutil
from collections import Counter
from html import escape
from pathlib import Path

from curation.gmai.items import PICTURES, SHEETS, Item
from curation.gmai.overlay import shown_png
from curation.gmai.sources import OF_KIND, Sources
from dataset_builders.files import replace_file

COUNT = 9
PAGE = """<!doctype html><meta charset="utf-8"><title>{0}</title>
<style>body {{ font: 15px system-ui; display: grid; grid-template-columns: repeat(3, 1fr); gap: 1rem; margin: 1rem }}
h1 {{ grid-column: 1 / -1; margin: 0; font-size: 1.2rem }} figure {{ margin: 0 }} img {{ width: 100%; background: #000 }}</style>
<h1>{0}: is each label where its picture is marked?</h1>
"""
FIGURE = '<figure><img alt="" src="data:image/png;base64,{}"><figcaption>{} ({})</figcaption></figure>\n'


def write_sheets(items: list[Item], private: Path, sources: Sources) -> None:
    """Write `private/sheets/DATASET.html` for each dataset, of as many different labels as possible; the same pictures in every run."""
    shutil.rmtree(private / SHEETS, ignore_errors=True)
    (private / SHEETS).mkdir()
    for dataset in sources.datasets:
        times: Counter[str] = Counter()
        by_turn = []
        for item in sorted(items, key=lambda item: item.item):  # keyed ids, so in no order of the files
            if item.dataset == dataset.name:
                by_turn.append((times[item.label], item.item, item))
                times[item.label] += 1
        page = PAGE.format(escape(dataset.name))
        for _, _, item in sorted(by_turn, key=lambda turn: turn[:2])[:COUNT]:
            kind = OF_KIND[item.kind][-1]
            png = shown_png(item.picture, item.mask, private / PICTURES, kind, item.box, sources.overlay)
            page += FIGURE.format(base64.b64encode(png).decode("ascii"), escape(item.label), kind)
        replace_file(private / SHEETS / f"{dataset.name}.html", page.encode())
