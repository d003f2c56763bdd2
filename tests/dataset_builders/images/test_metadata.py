"""Images keep their pixels and lose everything else, over generated files of every format."""

import io
import random
import zlib

import numpy as np
import pytest
from PIL import Image

from dataset_builders.images.lookup import ImageError, check_image, rgb_of
from dataset_builders.images.metadata import file_name, strip_metadata
from tests.planting import KINDS, found_in, image_file, planted


def seen(data):
    return np.asarray(rgb_of(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_planted_is_left_and_no_pixel_changes(kind, seed):
    rng = random.Random(f"{kind} {seed}")
    person = planted(rng)
    data, suffix = image_file(kind, person, rng)
    assert found_in(data, [person])  # the search finds what was planted
    clean = strip_metadata(data)
    assert found_in(clean, [person]) == []
    check_image(clean)
    assert (seen(clean) == seen(data)).all()
    assert strip_metadata(clean) == clean
    with Image.open(io.BytesIO(clean)) as image:
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi", "exif", "adobe", "adobe_transform",
                                   "progressive", "progression", "transparency", "background", "loop", "timestamp", "duration"}  # fmt: skip
        assert set(image.getexif()) <= {0x0112}
        assert file_name(f"x{suffix}", clean).endswith({"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp"}[image.format])


def test_bytes_hidden_behind_the_pixels_of_a_png_are_dropped():
    rng = random.Random(1)
    person = planted(rng)
    buffer = io.BytesIO()
    Image.new("L", (9, 9), 40).save(buffer, "PNG")
    data = buffer.getvalue()
    at = data.index(b"IDAT")
    size = int.from_bytes(data[at - 4 : at], "big")
    body = data[at + 4 : at + 4 + size] + person.everything.encode()
    chunk = len(body).to_bytes(4, "big") + b"IDAT" + body + zlib.crc32(b"IDAT" + body).to_bytes(4, "big")
    hidden = data[: at - 4] + chunk + data[at + 8 + size :]
    assert found_in(hidden, [person])
    assert found_in(strip_metadata(hidden), [person]) == []


@pytest.mark.parametrize("data", [b"", b"no image", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_refused(data):
    with pytest.raises(ImageError):
        strip_metadata(data)
