"""Invent patients, plant their names wherever an image file, its name or a table can contain one,
and search all bytes for them.
"""

import io
import random
import re
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image, ImageCms, PngImagePlugin, TiffImagePlugin

FAMILY_NAMES = ("Zwettlinger", "Okonkwo-Brandt", "Ñandúes", "Quisling", "Vögtlander", "Żółkiewski")
GIVEN = ("Ermentraud", "Chukwuemeka", "Þórdís", "Xaviera", "Yaroslava")


@dataclass(frozen=True)
class Planted:
    """An invented person: a name, an id and a position."""

    name: str
    number: str
    position: str

    @property
    def everything(self) -> str:
        return f"{self.name} {self.number} {self.position}"

    def needles(self) -> dict[bytes, str]:
        """Return what must not be found anywhere -> a description: each text and its parts, in the
        encodings that files use.
        """
        texts = {self.name, self.name.replace("^", "_"), *re.split(r"\W+", self.name), self.number, self.position}
        needles = {}
        for text in (text for text in texts if len(text) >= 5):
            for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "latin-1", "iso8859-2"):
                needles[text.encode(encoding, "ignore").lower()] = f"{text!r} in {encoding}"
        return {needle: kind for needle, kind in needles.items() if len(needle) >= 5}


def planted(rng: random.Random) -> Planted:
    return Planted(
        f"{rng.choice(FAMILY_NAMES)}^{rng.choice(GIVEN)}",
        f"PAT{rng.randrange(10**8):08d}",
        f"48.{rng.randrange(10**5):05d}N16.{rng.randrange(10**5):05d}E",
    )


@cache
def _needles(people: tuple[Planted, ...]) -> dict[bytes, str]:
    return {needle: kind for person in people for needle, kind in person.needles().items()}


def found_in(data: bytes, people: list[Planted]) -> list[str]:
    """Return the needles found in bytes, ignoring case, also in compressed parts (zlib, as in PNG
    and PDF).
    """
    needles = _needles(tuple(people))
    hits = []
    for prefix, part in (("", data), *(("unpacked ", piece) for piece in _unpacked(data))):
        folded = part.lower()
        hits += [f"{prefix}{kind}" for needle, kind in needles.items() if needle in folded]
    return hits


def _unpacked(data: bytes) -> list[bytes]:
    pieces = []
    for match in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
        try:
            pieces.append(zlib.decompressobj().decompress(data[match.start() :], 1 << 20))
        except zlib.error:
            continue
    return pieces


def found_below(folder: Path, people: list[Planted], leave_out: tuple[str, ...] = ()) -> list[str]:
    """Return every needle in a file name, in any byte, and in any decoded Parquet cell below a
    folder.
    """
    hits = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(re.search(pattern, name) for pattern in leave_out):
            continue
        hits += [f"name {name}: {hit}" for hit in found_in(name.encode("utf-8", "surrogateescape"), people)]
        if path.is_file():
            hits += [f"{name}: {hit}" for hit in found_in(path.read_bytes(), people)]
            if path.suffix == ".parquet":
                cells = b"\0\n".join(_cells(pq.read_table(path).to_pylist()))
                hits += [f"{name}, a cell: {hit}" for hit in found_in(cells, people)]
    return hits


def _cells(value: object) -> list[bytes]:
    if isinstance(value, dict):
        return [cell for part in value.values() for cell in _cells(part)]
    if isinstance(value, list):
        return [cell for part in value for cell in _cells(part)]
    if isinstance(value, bytes):
        return [value]
    return [str(value).encode("utf-8", "surrogatepass")]


def picture(rng: random.Random, mode: str = "RGB") -> Image.Image:
    """Draw a small picture without any text."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    size = (rng.randrange(16, 40), rng.randrange(16, 40))
    if mode == "I;16":
        return Image.fromarray(numbers.integers(0, 2**16, size[::-1], dtype=np.uint16))
    channels = {"L": (), "P": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}[mode]
    pixels = numbers.integers(0, 256, (*size[::-1], *channels), dtype=np.uint8)
    image = Image.fromarray(pixels, mode if mode != "P" else "L")
    return image.convert("P") if mode == "P" else image


def exif(person: Planted, orientation: int | None = None) -> Image.Exif:
    """Return EXIF data with names and position in ASCII, UTF-8 and UTF-16 tags, including GPS and a
    maker note.
    """
    tags = Image.Exif()
    tags[0x010E] = person.everything  # ImageDescription
    tags[0x013B] = person.name  # Artist
    tags[0x9C9D] = (person.name + "\0").encode("utf-16-le")  # XPAuthor
    tags[0x9C9B] = (person.everything + "\0").encode("utf-16-le")  # XPTitle
    inner = tags.get_ifd(0x8769)
    inner[0x9286] = b"UNICODE\0" + person.everything.encode("utf-16-be")  # UserComment
    inner[0x927C] = person.everything.encode()  # MakerNote
    gps = tags.get_ifd(0x8825)
    gps[0x001B] = person.position.encode()
    gps[0x001D] = person.number
    if orientation:
        tags[0x0112] = orientation
    return tags


def xmp(person: Planted) -> bytes:
    return f"<x:xmpmeta xmlns:x='adobe:ns:meta/'><dc:creator>{person.everything}</dc:creator></x:xmpmeta>".encode()


def icc(person: Planted) -> bytes:
    """Return a colour profile whose texts name the person."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    return bytes(profile) + person.everything.encode() + person.everything.encode("utf-16-be")


KINDS = (
    "jpeg",
    "jpeg-progressive",
    "jpeg-cmyk",
    "png",
    "png-16",
    "png-palette",
    "webp",
    "webp-lossless",
    "tiff",
    "gif",
    "bmp",
)


def image_file(kind: str, person: Planted, rng: random.Random) -> tuple[bytes, str]:
    """Return (an image file that names the person in every way that its format allows, its
    suffix).
    """
    buffer = io.BytesIO()
    orientation = rng.choice([None, 1, 3, 6, 8])
    if kind.startswith("jpeg"):
        image = picture(rng, "CMYK" if kind.endswith("cmyk") else rng.choice(["RGB", "L"]))
        save_options = {} if kind.endswith("cmyk") else {"icc_profile": icc(person)}
        image.save(
            buffer, "JPEG", exif=exif(person, orientation), xmp=xmp(person), comment=person.everything.encode(),
            progressive=kind.endswith("progressive"), **save_options,
        )  # fmt: skip
        data = buffer.getvalue()
        photoshop = b"Photoshop 3.0\0" + person.everything.encode()
        segment = b"\xff\xed" + (len(photoshop) + 2).to_bytes(2, "big") + photoshop
        return data[:2] + segment + data[2:-2] + segment + data[-2:] + person.everything.encode(), ".jpg"
    if kind.startswith("png"):
        texts = PngImagePlugin.PngInfo()
        texts.add_text("Author", person.name.encode("ascii", "replace").decode())
        texts.add_text("Comment", person.everything.encode("latin-1", "replace").decode("latin-1"), zip=True)
        texts.add_itxt("Description", person.everything, zip=rng.random() < 0.5)
        texts.add(b"teSt", person.everything.encode())
        image = picture(rng, {"png-16": "I;16", "png-palette": "P"}.get(kind) or rng.choice(["RGB", "L", "RGBA"]))
        image.save(buffer, "PNG", pnginfo=texts, exif=exif(person, orientation), icc_profile=icc(person))
        return buffer.getvalue() + person.everything.encode(), ".png"
    if kind.startswith("webp"):
        image = picture(rng, rng.choice(["RGB", "RGBA"]))
        image.save(
            buffer,
            "WEBP",
            exif=exif(person, orientation),
            xmp=xmp(person),
            icc_profile=icc(person),
            lossless="less" in kind,
        )
        return buffer.getvalue() + person.everything.encode(), ".webp"
    if kind == "tiff":
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags[270], tags[315] = person.everything, person.name
        tags[700] = xmp(person)
        picture(rng, rng.choice(["RGB", "L", "I;16"])).save(buffer, "TIFF", tiffinfo=tags)
        return buffer.getvalue() + person.everything.encode(), ".tif"
    if kind == "gif":
        picture(rng, "P").save(buffer, "GIF", comment=person.everything.encode())
        return buffer.getvalue() + person.everything.encode(), ".gif"
    picture(rng).save(buffer, "BMP")
    return buffer.getvalue() + person.everything.encode(), ".bmp"


def dicom_file(person: Planted, rng: random.Random) -> Any:
    """Make a CT slice that names the person in top-level and nested elements, private elements,
    overlays, free text and the file meta information.
    """
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, ImplicitVRLittleEndian, generate_uid

    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = rng.choice([ExplicitVRLittleEndian, ImplicitVRLittleEndian])
    data.file_meta.MediaStorageSOPClassUID = CTImageStorage
    data.file_meta.SourceApplicationEntityTitle = person.number[:16]
    data.SOPClassUID, data.SOPInstanceUID = CTImageStorage, generate_uid()
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    data.StudyInstanceUID, data.SeriesInstanceUID = generate_uid(), generate_uid()
    data.SpecificCharacterSet = "ISO_IR 192"
    data.PatientName, data.PatientID, data.PatientBirthDate = person.name, person.number, "19610312"
    data.Modality, data.Manufacturer, data.InstitutionName = "CT", person.name, person.everything
    data.StudyDescription, data.ImageComments, data.ProtocolName = person.everything, person.everything, person.name
    data.ImageType = ["ORIGINAL", "PRIMARY", rng.choice(["AXIAL", person.number])]
    data.SoftwareVersions, data.PositionReferenceIndicator = person.number, person.name[:16]
    inner = Dataset()
    inner.CodeValue, inner.CodingSchemeDesignator, inner.CodeMeaning = person.number, "L", person.everything
    deeper = Dataset()
    deeper.TextValue, deeper.PersonName, deeper.ReferencedSOPInstanceUID = (
        person.everything,
        person.name,
        data.SOPInstanceUID,
    )
    inner.ContentSequence = [deeper]
    data.ProcedureCodeSequence = [inner]
    data.AnatomicRegionSequence = [inner]
    block = data.private_block(0x0041, "MAKER", create=True)
    block.add_new(0x01, "LO", person.everything)
    block.add_new(0x02, "OB", person.everything.encode())
    data.add_new(0x60000022, "LO", person.name)  # OverlayDescription
    data.add_new(0x60001500, "LO", person.everything)  # OverlayLabel
    data.add_new(0x00091001, "UN", person.everything.encode())
    data.Rows, data.Columns, data.SamplesPerPixel, data.PhotometricInterpretation = 40, 48, 1, "MONOCHROME2"
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 12, 11, 0
    data.RescaleSlope, data.RescaleIntercept = 1, -1024
    data.PixelData = np.random.default_rng(rng.randrange(9**9)).integers(0, 4096, (40, 48), dtype=np.uint16).tobytes()
    data.preamble = person.number.encode().ljust(128, b"\0")
    return data
