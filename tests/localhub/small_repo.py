"""A small dataset folder written by hand, because tests of publishing need licences, origins and
files that no build writes.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

SMALL_CARD = """---
license: other
configs:
- config_name: questions
  default: true
  data_files:
  - split: test
    path: questions/test-*
- config_name: cases
  data_files:
  - split: test
    path: cases/test-*
---
# A small set
"""


def png_bytes(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 0, 0)).save(file, "PNG")
    return file.getvalue()


def small_repo(folder: Path, licences: Sequence[str | None] = ("CC BY 4.0", "CC0"), origin: str = "custom") -> Path:
    """Write one image and one question per licence, with configs `questions` and `cases`, a card
    and a manifest.
    """
    ids = [f"im-{number}" for number in range(len(licences))]
    images = [{"bytes": png_bytes(number), "path": f"{name}.png"} for number, name in enumerate(ids)]
    questions = pa.table(
        {
            "question_id": ids,
            "image": images,
            "image_id": ids,
            "question": [f"What does {name} show?" for name in ids],
            "image_license": pa.array(licences, pa.string()),
        }
    )
    cases = pa.table(
        {
            "case_id": ids,
            "images": [[image] for image in images],
            "image_ids": [[name] for name in ids],
        }
    )
    for config, table in (("questions", questions), ("cases", cases)):
        (folder / config).mkdir(parents=True)
        pq.write_table(table, folder / config / "test-00000-of-00001.parquet")

    (folder / "README.md").write_text(SMALL_CARD)
    manifest = {"schema_version": 1, "name": "small", "format": "mediconfusion", "origin": origin}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
