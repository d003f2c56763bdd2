"""Check that one picture stays the same by every route: whatever its file format, a local model, a
server, the exports to other harnesses and the Hub's tasks receive the same pixels as were drawn.
"""

import base64
import io
import struct
import zlib

import numpy as np
import pandas as pd
import pytest
from datasets import load_dataset
from PIL import Image

from dataset_builders.build import build, write_sources
from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError
from dataset_builders.images.picture import make_picture
from eval_harness.interop.exports import export_tsv, rgb_images, with_image_bytes
from eval_harness.models.local.model_inputs import decode_rgb_image
from tests.chaos.server import ChaosServer
from tests.eval_harness.models.http.asking import model, request

GREY = np.add.outer(np.arange(40), np.arange(3, 63)).astype(np.uint8) * 2
"""40 x 60 pixels with even values; all rotations and reflections differ."""
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], axis=-1)
ALPHA = np.where(GREY > 100, 255, 0).astype(np.uint8)
"""Alpha is 0 or 255, so that rounding does not matter."""
ON_WHITE = np.where(ALPHA[..., None] == 255, COLOUR, 255).astype(np.uint8)
TURNED = {
    1: lambda drawn: drawn,
    2: np.fliplr,
    3: lambda drawn: np.rot90(drawn, 2),
    4: np.flipud,
    5: lambda drawn: np.swapaxes(drawn, 0, 1),
    6: lambda drawn: np.rot90(drawn, -1),
    7: lambda drawn: np.rot90(np.swapaxes(drawn, 0, 1), 2),
    8: np.rot90,
}
# Factor 257 maps 255 to 65535, so that scaling back to 8 bits is exact.
DEEP = GREY.astype(np.uint16) * 257
TWELVE = np.rint(GREY.astype(float) * 4095 / 255).astype(np.uint16)


def saved(pixels, encoding, orientation=1, mode=None, **options):
    """Return the content of a file of these pixels."""
    buffer = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image = image.convert(mode) if mode else image
    # A TIFF has the orientation in its own tag, other formats in EXIF.
    if orientation > 1 and encoding == "TIFF":
        options["tiffinfo"] = {274: orientation} | options.get("tiffinfo", {})
    elif orientation > 1:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = orientation
    image.save(buffer, encoding, **options)
    return buffer.getvalue()


def png(width, height, depth, colour, rows, leading_chunks=b""):
    """A PNG that Pillow itself does not write."""
    # Pillow cannot write 16 bits per colour, sBIT or broken EXIF.
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    # Each row starts with its filter type; 0 is none.
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + head + leading_chunks + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def sbit(bits):
    return chunk(b"sBIT", bytes([bits]))


def big_endian(levels):
    return Image.frombytes("I;16B", levels.shape[::-1], levels.astype(">u2").tobytes())


def palette(transparent):
    image = Image.fromarray(GREY).convert("P")
    options = {"transparency": int(np.asarray(image)[0, 0])} if transparent else {}
    pixels = np.asarray(image.convert("RGB"))
    clear = np.asarray(image) == options.get("transparency", -1)
    return image, options, np.where(clear[..., None], 255, pixels).astype(np.uint8)


def kinds():
    """Return name -> (content of a file, expected pixels; (pixels, tolerance) for lossy
    formats).
    """
    rgba = np.dstack([COLOUR, ALPHA])
    la = Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(ALPHA)])
    grey_on_white = np.where(ALPHA == 255, GREY, 255).astype(np.uint8)
    second = Image.new("RGB", (60, 40), "red")
    files = {
        "jpeg grey": (saved(GREY, "JPEG", quality=95), None),
        "jpeg cmyk": (saved(COLOUR, "JPEG", mode="CMYK", quality=95, subsampling=0), None),
        "jpeg progressive": (saved(COLOUR, "JPEG", progressive=True, quality=95, subsampling=0), None),
        "png of one bit": (saved(GREY > 60, "PNG"), np.where(GREY > 60, 255, 0).astype(np.uint8)),
        "png grey": (saved(GREY, "PNG"), GREY),
        "png grey and alpha": (saved(la, "PNG"), grey_on_white),
        "png colour and alpha": (saved(rgba, "PNG"), ON_WHITE),
        "png opaque alpha": (saved(np.dstack([COLOUR, np.full_like(GREY, 255)]), "PNG"), COLOUR),
        "png one clear colour": (saved(GREY, "PNG", transparency=100), np.where(GREY == 100, 255, GREY).astype(np.uint8)),
        "png 16 bits": (saved(DEEP, "PNG"), GREY),
        "png 16 bits turned": (saved(DEEP, "PNG", 6), TURNED[6](GREY)),
        "png 16 bits a colour": (png(60, 40, 16, 2, [row.astype(">u2").tobytes() for row in COLOUR.astype(np.uint16) * 257]), COLOUR),
        "png 12 bits by its tag": (png(60, 40, 16, 0, [row.astype(">u2").tobytes() for row in TWELVE], sbit(12)), GREY),
        "png 12 bits scaled": (png(60, 40, 16, 0, [((row << 4) | (row >> 8)).astype(">u2").tobytes() for row in TWELVE], sbit(12)), GREY),
        "png damaged EXIF": (png(60, 40, 8, 2, [row.tobytes() for row in COLOUR], chunk(b"eXIf", b"no TIFF header")), COLOUR),
        "animated png": (saved(COLOUR, "PNG", save_all=True, append_images=[second]), COLOUR),
        "webp": (saved(COLOUR, "WEBP", lossless=True), COLOUR),
        "webp alpha": (saved(rgba, "WEBP", lossless=True, exact=True), ON_WHITE),
        "webp turned": (saved(COLOUR, "WEBP", 8, lossless=True), TURNED[8](COLOUR)),
        "gif film": (saved(GREY, "GIF", save_all=True, append_images=[Image.new("L", (60, 40))]), GREY),
        "bmp": (saved(COLOUR, "BMP"), COLOUR),
        "tiff alpha": (saved(rgba, "TIFF"), ON_WHITE),
        "tiff 16 bits": (saved(DEEP, "TIFF"), GREY),
        "tiff 16 bits big-endian": (saved(big_endian(DEEP), "TIFF"), GREY),
        "tiff 16 bits big-endian turned": (saved(big_endian(DEEP), "TIFF", 5), TURNED[5](GREY)),
        "tiff 16 bits white is 0": (saved(65535 - DEEP, "TIFF", tiffinfo={262: 0}), GREY),
        "tiff 12 bits by its tag": (saved(TWELVE, "TIFF", tiffinfo={281: 4095}), GREY),
        "tiff 32 bits": (saved(DEEP.astype(np.int32), "TIFF"), GREY),
        "tiff fractions": (saved((GREY / 255).astype(np.float32), "TIFF"), GREY),
        "jpeg2000": (saved(COLOUR, "JPEG2000"), COLOUR),
        "jpeg2000 16 bits": (saved(DEEP, "JPEG2000"), GREY),
    }  # fmt: skip
    for transparent in (False, True):
        image, options, pixels = palette(transparent)
        files[f"png palette {options}"] = saved(image, "PNG", **options), pixels
        files[f"gif palette {options}"] = saved(image, "GIF", **options), pixels
    for turn, turned in TURNED.items():
        files[f"jpeg turned {turn}"] = saved(COLOUR, "JPEG", turn, quality=95, subsampling=0), (turned(COLOUR), 12)
        files[f"png turned {turn}"] = saved(COLOUR, "PNG", turn), turned(COLOUR)
    # Lossy files may differ by up to 12 of 255 levels.
    lossy = {"jpeg grey": GREY, "jpeg cmyk": COLOUR, "jpeg progressive": COLOUR}
    return {name: (data, (lossy[name], 12) if pixels is None else pixels) for name, (data, pixels) in files.items()}


PICTURES = kinds()


def rgb(pixels):
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB")).astype(int)


def by_any_reader(data):
    """Return the pixels as a reader sees them that ignores EXIF, alpha, frames and depth, and reads
    only 8-bit JPEG and PNG.
    """
    with Image.open(io.BytesIO(data)) as image:
        assert image.format in ("JPEG", "PNG") and image.mode in ("1", "L", "P", "RGB", "RGBA")
        # Byte 24 of a PNG is its bit depth.
        assert image.format == "JPEG" or data[24] <= 8
        return np.asarray(image.convert("RGB")).astype(int)


def from_uri(uri):
    head, _, body = uri.partition(",")
    data = base64.b64decode(body)
    assert head == f"data:image/{'jpeg' if data[0] == 0xFF else 'png'};base64"
    return by_any_reader(data)


def sent_to_a_server(files):
    with ChaosServer() as server:
        list(model(server).generate([request(number, image=data) for number, data in enumerate(files)]))
    pictures = {}
    for body in server.bodies:
        image, text = body["messages"][0]["content"]
        # The server may receive the requests in any order; their text has the number.
        pictures[int(text["text"].split()[1].strip("?"))] = from_uri(image["image_url"]["url"])
    return [pictures[number] for number in range(len(files))]


def built(tmp_path, files):
    """Build a dataset of questions on these files; return it and the build's messages."""
    source = tmp_path / "source"
    source.mkdir(parents=True)
    write_sources("halt-medvqa", source)
    paths = sorted((source / "images").rglob("*.jpg"))
    # Replace the phantoms by the files to test, under their names.
    file_by_name = {path.name: files[number % len(files)] for number, path in enumerate(paths)}
    for path in paths:
        path.write_bytes(file_by_name[path.name])
    return build("halt-medvqa", source=source, out=tmp_path / "data", eval_yaml=True), file_by_name


@pytest.mark.parametrize("part", range(3))
def test_every_route_shows_the_picture_that_was_drawn(tmp_path, part):
    names = list(PICTURES)[part::3]
    files = [PICTURES[name][0] for name in names]
    report, file_by_name = built(tmp_path, files)
    name_of = {data: name for name, (data, _) in PICTURES.items()}
    stored = load_dataset(str(report.folder), "questions", split="test", cache_dir=str(tmp_path / "cache"))
    tasks = pd.concat(pd.read_parquet(path) for path in report.folder.glob("inspect*/*.parquet"))
    uris = dict(zip(tasks["question_id"], tasks["image_uri"], strict=True))
    table = pd.read_csv(export_tsv(str(report.folder), None, tmp_path / "tsv")[0], sep="\t", dtype=str)
    # VLMEvalKit's tables store a repeated image as the index of the row that has it.
    images = dict(zip(table["index"], table["image"], strict=True))
    exported = {
        row["question_id"]: images[row["image"]] if row["image"] in images else row["image"]
        for row in table.to_dict("records")
    }
    wrong = set()
    checked = set()
    for plain, raw in zip(stored, with_image_bytes(stored), strict=True):
        name = name_of[
            file_by_name[
                next(path for path in file_by_name if path.split(".")[0] == raw["image"]["path"].split(".")[0])
            ]
        ]
        seen = {
            "local": rgb(np.asarray(decode_rgb_image(raw["image"]["bytes"]))),
            "any reader": by_any_reader(raw["image"]["bytes"]),
            "datasets": rgb(np.asarray(plain["image"].convert("RGB"))),
            "lmms-eval": rgb(np.asarray(rgb_images(raw)[0])),
            "VLMEvalKit": by_any_reader(base64.b64decode(exported[raw["question_id"]])),
            "inspect": from_uri(uris[raw["question_id"]]),
        }
        wrong |= {(name, route) for route, pixels in seen.items() if not is_drawn(pixels, PICTURES[name][1])}
        checked.add(name)
    for name, data, sent in zip(names, files, sent_to_a_server(files), strict=True):
        local = rgb(np.asarray(decode_rgb_image(data)))
        wrong |= {(name, "server")} if not np.array_equal(sent, local) else set()
        wrong |= {(name, "file alone")} if not is_drawn(local, PICTURES[name][1]) else set()
    assert wrong == set() and checked == set(names)


def is_drawn(pixels, expected):
    expected, tolerance = expected if isinstance(expected, tuple) else (expected, 0)
    expected = rgb(np.ascontiguousarray(expected))
    return pixels.shape == expected.shape and np.abs(pixels - expected).max() <= tolerance


@pytest.mark.parametrize("encoding", ["PNG", "TIFF"])
def test_twelve_bits_are_told_by_the_whole_dataset_or_refused(tmp_path, encoding):
    """A dark slice beside a bright one is recognised; alone, or among 16-bit pictures, it cannot
    be.
    """
    dark, bright = saved(TWELVE // 4, encoding), saved(TWELVE, encoding)
    report, _ = built(tmp_path / "twelve", [dark, bright])
    rows = load_dataset(str(report.folder), "questions", split="test", cache_dir=str(tmp_path / "cache"))
    seen = {int(np.asarray(row["image"]).max()) for row in rows}
    assert seen == {round(int((TWELVE // 4).max()) * 255 / 4095), int(GREY.max())}
    with pytest.raises(BadInput, match="bit depth is unknown"):
        built(tmp_path / "mixed", [dark, saved(DEEP, encoding)])
    # Without a dataset, 4095 may be white of 12 bits or a dark grey of 16.
    with pytest.raises(ImageError, match="bit depth is unknown"):
        make_picture(bright)
    for levels in (DEEP.astype(np.int32) - 9000, np.full(DEEP.shape, np.nan, np.float32)):
        with pytest.raises(ImageError, match="grey levels range from"):
            make_picture(saved(levels, "TIFF"))


def test_the_build_says_what_it_met(tmp_path):
    names = ["jpeg turned 6", "webp alpha", "gif film", "tiff fractions", "tiff 16 bits", "png of one bit", "png grey"]
    report, _ = built(tmp_path, [PICTURES[name][0] for name in names])
    for words in ("EXIF", "transparent", "frames", "floating-point", "more than 8 bits", "fewer than 32 grey levels"):
        assert words in str(report)
    (tmp_path / "plain").mkdir()
    assert " images are " not in str(built(tmp_path / "plain", [PICTURES["png grey"][0]])[0])
