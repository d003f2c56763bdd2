"""Finding images by name, and telling whole images from broken ones."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dataset_builders.images import MAX_PIXELS, ImageError, ImageFolders, check_image, unambiguous
from dataset_builders.phantom_drawings import Drawing, draw
from dataset_builders.source_files import stays_inside

PICTURE = Image.open(io.BytesIO(draw(Drawing("chest", "xray"))))


def encoded(format, **options):
    stream = io.BytesIO()
    PICTURE.save(stream, format, **options)
    return stream.getvalue()


WHOLE = {format: encoded(format) for format in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")}
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
def shelf(tmp_path):
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
def test_finding_by_name(shelf, names, found):
    path = ImageFolders([shelf]).find(names)
    assert path == (shelf / found if found else None)


def test_a_folder_given_may_be_the_inner_one(shelf):
    assert ImageFolders([shelf / "deep" / "er"]).find(["deep/er/x.jpg"]) == shelf / "deep/er/X.JPG"


def test_different_files_of_one_name_are_an_error(shelf):
    with pytest.raises(ImageError, match="two different files"):
        ImageFolders([shelf]).find(["1.png"])
    (shelf / "1.png").write_bytes(b"here")
    assert ImageFolders([shelf]).find(["1.png"]) == shelf / "1.png"


def test_links_are_followed_and_rings_of_links_end(shelf, tmp_path_factory):
    blobs = tmp_path_factory.mktemp("blobs")
    (blobs / "abc").write_bytes(b"image")
    (shelf / "linked.png").symlink_to(blobs / "abc")
    (shelf / "ring").symlink_to(shelf, target_is_directory=True)
    assert ImageFolders([shelf]).find(["linked.png"]) == shelf / "linked.png"


def test_which_names_are_unambiguous():
    assert unambiguous(["a/1.png", "b/1.png", "b/2.png"]) == {"2.png"}
