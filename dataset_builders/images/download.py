"""Download missing images from an address template, at most three requests a second; an interrupted download resumes.

See also: which images a benchmark needs (its builder), looking for them in folders (`lookup.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import re
import string
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tqdm import tqdm

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.images.lookup import ImageError, check_image

USER_AGENT = "medprobe dataset builder (one request at a time)"
PAUSE = 0.34
"""Seconds between requests: NCBI asks for at most three per second."""
TRIES = 4
TIMEOUT = 60.0
MAX_BYTES = 512 * 1024 * 1024
"""The largest file taken: an article's package can be large, an image is not."""
CHECKSUMS = "sha256.json"
"""In the download folder: file name -> sha256. A file that no longer fits is downloaded again."""


def is_template(source: str) -> bool:
    """True if an `--images` argument is an address and not a folder."""
    return re.match(r"https?:/", source) is not None


def download_missing(
    templates: Sequence[str],
    fields: Mapping[str, Mapping[str, str]],
    missing: Mapping[str, str],
    folder: Path,
) -> dict[str, str]:
    """Download the images `missing` (image id -> name) into `folder`, named by image id; returns id -> why of those not to be had.

    A template is an address with fields in braces ("https://host/{pmcid}/{file_name}"); where it ends in .tar.gz, the image is taken
    out of that package, which is fetched once. Templates are tried in order. What is there already is kept; a file cut off goes
    on where it stopped. Raises BadInput for a template that names an unknown field.
    """
    addresses = [_checked(template, fields) for template in templates]
    folder.mkdir(parents=True, exist_ok=True)
    sums = _Checksums(folder)
    packages: dict[str, dict[str, bytes] | str] = {}
    failed: dict[str, str] = {}
    wanted = sorted((image for image in missing if image in fields), key=lambda i: (fields[i].get("package", ""), i))
    failed.update({image: "the source does not say where it is" for image in missing if image not in fields})
    for image in tqdm(wanted, desc="downloading images", unit=" images", disable=None):
        if sums.have(image):
            continue
        why: list[str] = []
        for address in addresses:
            url = address.format_map({name: quote(value, safe="/") for name, value in fields[image].items()})
            try:
                data = _image_at(url, fields[image], folder, packages)
                sums.keep(f"{image}.{_suffix(data)}", data)
                why = []
                break
            except (_NotThereError, ImageError) as error:
                why.append(f"{url}: {error}")
        if why:
            failed[image] = "; ".join(why)
    if failed:
        write_json(folder / "failed.json", failed, sort_keys=True)
    else:
        (folder / "failed.json").unlink(missing_ok=True)
    return failed


def drop_changed(folder: Path) -> None:
    """Delete downloaded images whose bytes are no longer those that came, so that they are fetched again."""
    sums = _Checksums(folder)
    for name in list(sums.sums):
        sums.have(name.rsplit(".", 1)[0])


class _NotThereError(Exception):
    """The server has no such file, or could not be asked; the message says why."""


def _checked(template: str, fields: Mapping[str, Mapping[str, str]]) -> str:
    template = re.sub(r"^(https?):/+", r"\1://", template)
    known = {name for each in fields.values() for name in each}
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise BadInput(f"--images {template}: {error}. Write fields like {{file_name}}.") from None
    unknown = sorted(names - known)
    if unknown or not names:
        what = f"there is no field {unknown[0]!r}" if unknown else "names no field, so every image would be the same"
        raise BadInput(f"--images {template}: {what}. Fields: {', '.join(sorted(known))}.")
    return template


def _image_at(url: str, fields: Mapping[str, str], folder: Path, packages: dict[str, dict[str, bytes] | str]) -> bytes:
    if not url.endswith((".tar.gz", ".tgz")):
        data = _fetch(url, folder)
        check_image(data)
        return data
    if url not in packages:
        packages.clear()
        try:
            packages[url] = _unpacked(_fetch(url, folder))
        except _NotThereError as error:
            packages[url] = str(error)
    content = packages[url]
    if isinstance(content, str):
        raise _NotThereError(content)
    name = fields["file_name"]
    if name not in content:
        raise _NotThereError(f"the package holds no {name}")
    check_image(content[name])
    return content[name]


def _unpacked(data: bytes) -> dict[str, bytes]:
    """File name (without folders) -> bytes, of the images of a package; nothing is written to disk."""
    found: dict[str, bytes] = {}
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as package:
            for member in package:
                size += member.size
                if size > 4 * MAX_BYTES:
                    raise _NotThereError("the package is too large")
                stream = package.extractfile(member) if member.isfile() else None
                if stream is not None and member.name.lower().endswith((".jpg", ".jpeg", ".png", ".gif", ".tif")):
                    found[member.name.rsplit("/", 1)[-1]] = stream.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise _NotThereError(f"not a package ({error})") from None
    return found


def _fetch(url: str, folder: Path) -> bytes:
    """The file at an address. What came of a broken download is kept and asked for from there on; waits when the server says so."""
    part = folder / f".{hashlib.sha256(url.encode()).hexdigest()[:24]}.part"
    why = ""
    for attempt in range(TRIES):
        time.sleep(PAUSE if attempt == 0 else min(PAUSE * 4**attempt, 30.0))
        try:
            _continue(url, part)
            data = part.read_bytes()
            part.unlink()
            return data
        except urllib.error.HTTPError as error:
            why = f"HTTP {error.code}"
            if error.code == 416:
                part.unlink(missing_ok=True)
            elif error.code in (429, 500, 502, 503, 504):
                time.sleep(_retry_after(error))
            else:
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            why = str(getattr(error, "reason", error)) or type(error).__name__
    raise _NotThereError(why)


def _continue(url: str, part: Path) -> None:
    """Append what is missing of a file to `part`."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    tag = part.with_suffix(".tag")
    if start and tag.exists():
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", tag.read_text())
    else:
        start = 0
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        appending = answer.status == 206 and start > 0
        expected = answer.headers.get("Content-Length")
        if answer.headers.get("ETag"):
            tag.write_text(answer.headers["ETag"])
        with part.open("ab" if appending else "wb") as stream:
            while block := answer.read(1 << 16):
                stream.write(block)
                if stream.tell() > MAX_BYTES:
                    raise _NotThereError(f"larger than {MAX_BYTES >> 20} MiB")
    got = part.stat().st_size - (start if appending else 0)
    if expected is not None and got != int(expected):
        raise ConnectionError(f"cut off after {got} of {expected} bytes")
    tag.unlink(missing_ok=True)


def _retry_after(error: urllib.error.HTTPError) -> float:
    with contextlib.suppress(TypeError, ValueError):
        return min(max(float(error.headers.get("Retry-After", "")), 0.0), 60.0)
    return PAUSE


def _suffix(data: bytes) -> str:
    kind = check_image(data).lower()
    return {"jpeg": "jpg", "mpo": "jpg"}.get(kind, kind)


class _Checksums:
    """The images downloaded so far; the list is written after each, so that a killed download loses none."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / CHECKSUMS
        self.sums: dict[str, str] = {}
        if self.file.is_file():
            try:
                self.sums = dict(json.loads(self.file.read_text()))
            except (ValueError, TypeError):
                raise BadInput(f"{self.file}: is damaged. Delete it; the images are then checked anew.") from None

    def have(self, image: str) -> bool:
        """True if the image is there and as it was downloaded."""
        for name in [name for name in self.sums if name.rsplit(".", 1)[0] == image]:
            path = self.folder / name
            if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sums[name]:
                return True
            path.unlink(missing_ok=True)
            del self.sums[name]
        return False

    def keep(self, name: str, data: bytes) -> None:
        """Write an image, then note it."""
        replace_file(self.folder / name, data)
        self.sums[name] = hashlib.sha256(data).hexdigest()
        write_json(self.file, self.sums, sort_keys=True)
