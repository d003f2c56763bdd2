"""Finding images by name, and telling whole images from broken ones."""

import io
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dataset_builders.images.lookup import MAX_PIXELS, ImageError, ImageFolders, check_image, unambiguous
from dataset_builders.images.phantom_drawings import Drawing, draw
from dataset_builders.source_files import stays_inside
from eval_harness.models.local.model_inputs import decode_image

PICTURE = Image.open(io.BytesIO(draw(Drawing("chest", "xray"))))


def encoded(encoding, **options):
    stream = io.BytesIO()
    PICTURE.save(stream, encoding, **options)
    return stream.getvalue()


WHOLE = {encoding: encoded(encoding) for encoding in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")}
WHOLE["progressive JPEG"] = encoded("JPEG", progressive=True)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_images_pass(name):
    assert check_image(WHOLE[name]) in name


@pytest.mark.parametrize("name", ["PNG", "JPEG", "progressive JPEG", "BMP", "WEBP"])
@settings(max_examples=25, deadline=None)
@given(share=st.floats(min_value=0, max_value=0.97))
def test_an_image_cut_off_anywhere_is_refused(name, share):
    data = WHOLE[name]
    with pytest.raises(ImageError):
        check_image(data[: int(len(data) * share)])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data):
    with pytest.raises(ImageError):
        check_image(data)


def test_the_size_limit_is_pillows_own():
    assert MAX_PIXELS == 2 * Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("a.png", True),
        ("a/b/c.png", True),
        ("a..b/c.png", True),
        ("../a.png", False),
        ("a/../../b.png", False),
        ("/etc/passwd", False),
        ("C:\\a.png", False),
        ("\\\\host\\share\\a.png", False),
        ("a\\..\\..\\b.png", False),
        ("a\x00.png", False),
    ],
)
def test_names_that_leave_the_folder(name, inside):
    assert stays_inside(name) is inside


@pytest.fixture
def image_folder(tmp_path):
    for name in ("brain/1.png", "chest/1.png", "deep/er/X.JPG", "only.jpeg", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["brain/1.png"], "brain/1.png"),
        (["BRAIN/1.PNG"], "brain/1.png"),
        (["brain\\1.png"], "brain/1.png"),
        (["er/x.jpg"], "deep/er/X.JPG"),
        (["x.png"], "deep/er/X.JPG"),
        (["only"], "only.jpeg"),
        (["spine/1.png"], None),
        (["spine/1.png", "only.jpg"], "only.jpeg"),
        (["notes.txt"], None),
        (["x"], "deep/er/X.JPG"),
    ],
)
def test_finding_by_name(image_folder, names, found):
    path = ImageFolders([image_folder]).find(names)
    assert path == (image_folder / found if found else None)


def test_a_folder_given_may_be_the_inner_one(image_folder):
    assert ImageFolders([image_folder / "deep" / "er"]).find(["deep/er/x.jpg"]) == image_folder / "deep/er/X.JPG"


def test_different_files_of_one_name_are_an_error(image_folder):
    with pytest.raises(ImageError, match="two different files"):
        ImageFolders([image_folder]).find(["1.png"])
    (image_folder / "1.png").write_bytes(b"here")
    assert ImageFolders([image_folder]).find(["1.png"]) == image_folder / "1.png"


def test_links_are_followed_and_rings_of_links_end(image_folder, tmp_path_factory):
    blobs = tmp_path_factory.mktemp("blobs")
    (blobs / "abc").write_bytes(b"image")
    (image_folder / "linked.png").symlink_to(blobs / "abc")
    (image_folder / "ring").symlink_to(image_folder, target_is_directory=True)
    assert ImageFolders([image_folder]).find(["linked.png"]) == image_folder / "linked.png"


def test_which_names_are_unambiguous():
    assert unambiguous(["a/1.png", "b/1.png", "b/2.png"]) == {"2.png"}


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(pixels):
    """A PNG whose chunks are right, whatever its compressed pixels are."""
    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


ROWS = b"".join(b"\0" + bytes(range(192)) for _ in range(64))


@pytest.mark.parametrize(
    "pixels",
    [
        b"",
        b"no zlib at all",
        zlib.compress(ROWS)[:-40],
        zlib.compress(ROWS[: len(ROWS) // 2]),
        zlib.compress(b"\x09" * len(ROWS)),
    ],
    ids=["none", "no zlib", "cut off", "half the rows", "no such filter"],
)
def test_a_png_with_right_chunks_and_a_damaged_body_is_refused(pixels):
    assert check_image(png(zlib.compress(ROWS))) == "PNG"
    with pytest.raises(ImageError, match="damaged"):
        check_image(png(pixels))


def test_half_a_jpeg_that_goes_on_with_something_else_is_refused():
    for name in ("JPEG", "progressive JPEG"):
        half = WHOLE[name][: len(WHOLE[name]) // 2]
        with pytest.raises(ImageError, match="damaged"):
            check_image(half + random.Random(1).randbytes(len(half)) + b"\xff\xd9")


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_passes_can_be_shown_to_a_model(name, seed):
    """Wherever a file is damaged: what a build accepts, the back ends decode."""
    draw = random.Random(seed)
    data = bytearray(WHOLE[name])
    for _ in range(draw.choice((1, 3, 30))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    try:
        check_image(bytes(data))
    except ImageError:
        return
    assert decode_image(bytes(data)).mode == "RGB"


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    cut=st.booleans(),
)
def test_pngs_of_every_kind_pass_whole_and_fail_with_a_row_missing(mode, size, cut):
    stream = io.BytesIO()
    Image.effect_noise(size, 90).convert(mode if mode != "I;16" else "L").convert(mode).save(stream, "PNG")
    data = stream.getvalue()
    if not cut:
        assert check_image(data) == "PNG"
        return
    start = data.index(b"IDAT") - 4
    length = int.from_bytes(data[start : start + 4], "big")
    rows = zlib.decompress(data[start + 8 : start + 8 + length])
    short = rows[: len(rows) - len(rows) // size[1]]
    with pytest.raises(ImageError, match="damaged"):
        check_image(data[:start] + chunk(b"IDAT", zlib.compress(short)) + data[start + 12 + length :])


@settings(max_examples=40)
@given(
    st.sampled_from(["RGB", "L", "CMYK"]),
    st.booleans(),
    st.sampled_from([{}, {"restart_marker_blocks": 4}, {"optimize": True}]),
    st.integers(20, 95),
    st.floats(0.2, 0.9),
    st.integers(0, 2**32),
)
def test_a_jpeg_whose_data_ends_before_its_picture_is_refused(mode, progressive, options, quality, share, seed):
    """Half a JPEG with an end marker behind it, which Pillow decodes without a word. (Progressive ones may be cut between two scans:
    those are whole pictures, less sharp.)"""
    draw = random.Random(seed)
    image = Image.frombytes("RGB", (8, 8), draw.randbytes(192)).resize((draw.randint(40, 200), draw.randint(40, 200)))
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, "JPEG", quality=quality, progressive=progressive, **options)
    data = buffer.getvalue()
    assert check_image(data) == "JPEG"
    assert check_image(data + b"behind the end") == "JPEG"
    start = data.index(b"\xff\xda") + 14
    if not progressive and len(data) - start > 300:
        with pytest.raises(ImageError, match="cut off"):
            check_image(data[: start + int((len(data) - start) * share)] + b"\xff\xd9")


@pytest.mark.sources
def test_no_jpeg_of_the_sources_is_taken_for_a_damaged_one(sources):
    files = [path for path in sources.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")]
    assert files and all(check_image(path.read_bytes()) for path in files)
