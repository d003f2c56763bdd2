"""Download missing images from an address template, at most three requests a second; an interrupted download resumes.

See also: which images a benchmark needs (its builder), looking for them in folders (`lookup.py`).
"""

from __future__ import annotations

import re
import string
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from huggingface_hub.utils import http_backoff, httpx
from tqdm import tqdm

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file, write_json
from dataset_builders.images.lookup import ImageError, check_image

USER_AGENT = "medprobe dataset builder (one request at a time)"
REQUEST_INTERVAL_S = 0.34
"""Seconds between requests: NCBI asks for at most three per second."""
DOWNLOAD_ATTEMPTS = 4
REQUEST_TIMEOUT_S = 60.0


def is_url_template(source: str) -> bool:
    """True if an `--images` argument is an address and not a folder."""
    return re.match(r"https?:/", source) is not None


def download_missing(
    templates: Sequence[str],
    fields: Mapping[str, Mapping[str, str]],
    missing: Mapping[str, str],
    folder: Path,
) -> dict[str, str]:
    """Download the images `missing` (image id -> name) into `folder`, named by image id; returns id -> why of those not to be had.

    A template is an address with fields in braces ("https://host/{pmcid}/{file_name}"). Templates are tried in order. What is there
    already is kept.
    Raises BadInput for a template that names an unknown field.
    """
    addresses = [_check_template(template, fields) for template in templates]
    folder.mkdir(parents=True, exist_ok=True)
    failed = {image: "the source does not say where it is" for image in missing if image not in fields}
    wanted = sorted(missing.keys() - failed.keys())
    for image in tqdm(wanted, desc="downloading images", unit=" images", disable=None):
        if any(path.stem == image for path in folder.iterdir()):
            continue
        why: list[str] = []
        for address in addresses:
            url = address.format_map({name: quote(value, safe="/") for name, value in fields[image].items()})
            try:
                data = _fetch(url)
                kind = check_image(data).lower()
                replace_file(folder / f"{image}.{'jpg' if kind in ('jpeg', 'mpo') else kind}", data)
                break
            except (_NotThereError, ImageError) as error:
                why.append(f"{url}: {error}")
        else:
            failed[image] = "; ".join(why)
    write_json(folder / "failed.json", failed, sort_keys=True)
    return failed


class _NotThereError(Exception):
    """The server has no such file, or could not be asked; the message says why."""


def _check_template(template: str, fields: Mapping[str, Mapping[str, str]]) -> str:
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


def _fetch(url: str) -> bytes:
    """The file at an address; huggingface_hub's client asks again while the server is busy and where the connection breaks."""
    time.sleep(REQUEST_INTERVAL_S)
    try:
        answer = http_backoff(
            "GET",
            url,
            headers={"User-Agent": USER_AGENT},
            timeout=REQUEST_TIMEOUT_S,
            max_retries=DOWNLOAD_ATTEMPTS - 1,
            base_wait_time=REQUEST_INTERVAL_S,
        )
        answer.raise_for_status()
    except (httpx.HTTPError, OSError) as error:
        response = getattr(error, "response", None)
        why = str(error) or type(error).__name__ if response is None else f"HTTP {response.status_code}"
        raise _NotThereError(why) from None
    return bytes(answer.content)
