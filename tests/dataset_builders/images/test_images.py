"""Test finding images by name, telling complete images from broken ones, and removing metadata."""

import io
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from dataset_builders.images.lookup import ImageError, ImageFolders, check_image
from dataset_builders.images.phantom_drawings import Drawing, draw_phantom
from dataset_builders.images.picture import image_file_name, make_picture, strip_metadata
from eval_harness.models.local.model_inputs import decode_rgb_image
from tests.planting import KINDS, found_in, image_file, planted

PHANTOM = Image.open(io.BytesIO(draw_phantom(Drawing("chest", "xray"))))


def encode(encoding, **options):
    stream = io.BytesIO()
    PHANTOM.save(stream, encoding, **options)
    return stream.getvalue()


VALID_FILES = {encoding: encode(encoding) for encoding in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")}
VALID_FILES["progressive JPEG"] = encode("JPEG", progressive=True)


@pytest.mark.parametrize("name", VALID_FILES)
def test_complete_images_pass(name):
    assert check_image(VALID_FILES[name]) in name


@pytest.mark.parametrize("name", ["PNG", "JPEG", "progressive JPEG", "BMP", "WEBP"])
@settings(max_examples=10, deadline=None)
@given(share=st.floats(min_value=0, max_value=0.97))
def test_truncated_image_is_rejected(name, share):
    data = VALID_FILES[name]
    with pytest.raises(ImageError):
        check_image(data[: int(len(data) * share)])


@pytest.fixture
def image_folder(tmp_path):
    for name in ("brain/1.png", "chest/1.png", "deep/er/X.JPG", "only.jpeg", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["brain/1.png"], "brain/1.png"),
        (["BRAIN/1.PNG"], "brain/1.png"),
        (["brain\\1.png"], "brain/1.png"),
        (["er/x.jpg"], "deep/er/X.JPG"),
        # The suffix may differ, because images are often converted.
        (["x.png"], "deep/er/X.JPG"),
        (["only"], "only.jpeg"),
        # Two folders have a 1.png, but neither is the one named.
        (["spine/1.png"], None),
        (["spine/1.png", "only.jpg"], "only.jpeg"),
        (["notes.txt"], None),
        (["x"], "deep/er/X.JPG"),
    ],
)
def test_images_are_found_by_name(image_folder, names, expected):
    path = ImageFolders([image_folder]).find(names)
    assert path == (image_folder / expected if expected else None)


def test_inner_folder_may_be_given(image_folder):
    assert ImageFolders([image_folder / "deep" / "er"]).find(["deep/er/x.jpg"]) == image_folder / "deep/er/X.JPG"


def test_ambiguous_name_is_an_error(image_folder):
    with pytest.raises(ImageError, match="two different files"):
        ImageFolders([image_folder]).find(["1.png"])

    # A file directly in the folder takes precedence.
    (image_folder / "1.png").write_bytes(b"here")
    assert ImageFolders([image_folder]).find(["1.png"]) == image_folder / "1.png"


def test_links_are_followed_without_endless_loops(image_folder, tmp_path_factory):
    blobs = tmp_path_factory.mktemp("blobs")
    (blobs / "abc").write_bytes(b"image")
    (image_folder / "linked.png").symlink_to(blobs / "abc")

    # A link to the folder itself would loop forever.
    (image_folder / "ring").symlink_to(image_folder, target_is_directory=True)
    assert ImageFolders([image_folder]).find(["linked.png"]) == image_folder / "linked.png"


@pytest.mark.parametrize("name", VALID_FILES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_accepted_images_can_be_decoded(name, seed):
    """Whatever damage a build accepts, the back ends can decode."""
    draw = random.Random(seed)
    data = bytearray(VALID_FILES[name])

    # Damage between one and thirty random bytes.
    for _ in range(draw.choice((1, 3, 30))):
        data[draw.randrange(len(data))] = draw.randrange(256)

    try:
        check_image(bytes(data))
    except ImageError:
        return

    assert decode_rgb_image(bytes(data)).mode == "RGB"


@settings(max_examples=40)
@given(
    st.sampled_from(["RGB", "L", "CMYK"]),
    st.booleans(),
    st.sampled_from([{}, {"restart_marker_blocks": 4}, {"optimize": True}]),
    st.integers(20, 95),
    st.floats(0.2, 0.9),
    st.integers(0, 2**32),
)
def test_jpeg_with_missing_data_is_rejected(mode, progressive, options, quality, share, seed):
    """A truncated JPEG with an end marker, which Pillow decodes silently, is rejected.

    Progressive JPEGs are excluded: cut between two scans, they are complete but less sharp.
    """
    draw = random.Random(seed)
    image = Image.frombytes("RGB", (8, 8), draw.randbytes(192)).resize((draw.randint(40, 200), draw.randint(40, 200)))
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, "JPEG", quality=quality, progressive=progressive, **options)
    data = buffer.getvalue()
    assert check_image(data) == "JPEG"
    assert check_image(data + b"behind the end") == "JPEG"

    # Skip the header of the first scan.
    start = data.index(b"\xff\xda") + 14
    if not progressive and len(data) - start > 300:
        with pytest.raises(ImageError, match="cut off"):
            check_image(data[: start + int((len(data) - start) * share)] + b"\xff\xd9")


@pytest.mark.sources
def test_jpegs_of_the_sources_are_accepted(sources):
    files = [path for path in sources.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")]
    assert files and all(check_image(path.read_bytes()) for path in files)


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
