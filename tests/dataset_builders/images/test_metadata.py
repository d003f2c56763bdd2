"""Images keep their pixels and lose everything else, over generated files of every format."""

import io
import random
import zlib

import numpy as np
import pytest
from PIL import Image

from dataset_builders.images.lookup import ADAM7, ImageError, check_image, png_bytes, rgb_of
from dataset_builders.images.metadata import file_name, strip_metadata
from tests.planting import KINDS, found_in, image_file, picture, planted


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
        assert file_name(f"x{suffix}", clean).endswith({"JPEG": ".jpg", "PNG": ".png"}[image.format])


def chunk(kind, body):
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


@pytest.mark.parametrize("seed", range(4))
def test_bytes_hidden_behind_or_in_the_pixels_of_a_png_are_dropped(seed):
    """After the end of the packed rows, and as more rows than the picture has; whatever the mode."""
    rng = random.Random(seed)
    person = planted(rng)
    image = picture(rng, ("L", "RGB", "RGBA", "P")[seed])
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    data = buffer.getvalue()
    first, last = data.index(b"IDAT") - 4, data.index(b"IEND") - 4
    rows = zlib.decompress(data[first + 8 : last - 4])
    packed = (zlib.compress(rows) + person.everything.encode(), zlib.compress(rows + person.everything.encode()))
    for body in packed:
        hidden = data[:first] + chunk(b"IDAT", body) + data[last:]
        assert found_in(hidden, [person])
        clean = strip_metadata(hidden)
        assert found_in(clean, [person]) == []
        assert (seen(clean) == seen(data)).all()


def test_each_pixel_of_an_interlaced_png_is_in_one_pass():
    """How many bytes rows have is tested with files of every mode (`test_images.py`); Pillow writes none that are interlaced."""
    pixels = np.zeros((17, 13), int)
    for left, top, right, down in ADAM7:
        pixels[top::down, left::right] += 1
    assert (pixels == 1).all()
    header = (13).to_bytes(4, "big") + (17).to_bytes(4, "big") + bytes((8, 0, 0, 0, 1))
    passes = [pixels[top::down, left::right] for left, top, right, down in ADAM7]
    assert png_bytes(header) == sum(rows * (1 + columns) for rows, columns in (each.shape for each in passes))


def test_a_segment_that_holds_no_picture_is_dropped():
    """A JPEG's segment that readers skip (DNL)."""
    rng = random.Random(3)
    person = planted(rng)
    text = person.everything.encode()
    text += b"\0" * (len(text) % 2)
    image = picture(rng)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    data = buffer.getvalue()
    hidden = data[:-2] + b"\xff\xdc" + (len(text) + 2).to_bytes(2, "big") + text + data[-2:]
    assert found_in(hidden, [person])
    assert found_in(strip_metadata(hidden), [person]) == []


@pytest.mark.parametrize("data", [b"", b"no image", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_refused(data):
    with pytest.raises(ImageError):
        strip_metadata(data)
