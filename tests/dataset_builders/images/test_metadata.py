"""Check over generated files of every format that images keep their pixels and lose everything
else.
"""

import io
import random

import numpy as np
import pytest
from PIL import Image

from dataset_builders.images.lookup import ImageError, check_image
from dataset_builders.images.metadata import image_file_name, strip_metadata
from dataset_builders.images.picture import make_picture
from tests.planting import KINDS, found_in, image_file, planted


def decoded_pixels(data):
    return np.asarray(make_picture(data).pixels.convert("RGB"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_metadata_is_removed_and_pixels_stay(kind, seed):
    rng = random.Random(f"{kind} {seed}")
    person = planted(rng)
    data, suffix = image_file(kind, person, rng)
    assert found_in(data, [person])  # the search finds what was planted

    # Stripping twice must change nothing, and only picture-related keys may remain.
    clean = strip_metadata(data)
    assert found_in(clean, [person]) == []
    check_image(clean)
    assert (decoded_pixels(clean) == decoded_pixels(data)).all()
    assert strip_metadata(clean) == clean
    with Image.open(io.BytesIO(clean)) as image:
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi", "exif", "adobe", "adobe_transform",
                                   "progressive", "progression", "transparency", "background", "loop", "timestamp", "duration"}  # fmt: skip
        assert set(image.getexif()) <= {0x0112}
        assert image_file_name(f"x{suffix}", clean).endswith({"JPEG": ".jpg", "PNG": ".png"}[image.format])


@pytest.mark.parametrize("data", [b"", b"no image", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"])
def test_invalid_image_is_rejected(data):
    with pytest.raises(ImageError):
        strip_metadata(data)
