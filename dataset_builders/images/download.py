"""Download missing images from a URL template, at most three requests a second; interrupted
downloads resume.

See also: which images a benchmark needs (its reader), finding images in folders (`lookup.py`).
"""

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
"""Pause between requests in seconds; NCBI allows at most three requests per second."""
DOWNLOAD_ATTEMPTS = 4
REQUEST_TIMEOUT_S = 60.0


def is_url_template(source: str) -> bool:
    """Return True if an `--images` argument is a URL rather than a folder."""
    return re.match(r"https?:/", source) is not None


def download_missing(
    templates: Sequence[str],
    fields: Mapping[str, Mapping[str, str]],
    missing: Mapping[str, str],
    folder: Path,
) -> dict[str, str]:
    """Download missing images. Existing files are kept.

    Args:
        templates: URLs with fields in braces ("https://host/{pmcid}/{file_name}"), tried in order.
        fields: image id -> values of the template fields.
        missing: image id -> name of the images to download.
        folder: where to write them, named by image id.

    Returns:
        Image id -> reason, for the images that could not be downloaded.

    Raises:
        BadInput: a template uses an unknown field.
    """
    addresses = [_check_template(template, fields) for template in templates]
    folder.mkdir(parents=True, exist_ok=True)
    failed = {image: "the source gives no location for it" for image in missing if image not in fields}

    # The extension is known only after the download.
    present = {path.stem for path in folder.iterdir()}
    pending = sorted(missing.keys() - failed.keys() - present)
    for image in tqdm(pending, desc="downloading images", unit=" images", disable=None):
        reasons: list[str] = []
        for address in addresses:
            url = address.format_map({name: quote(value, safe="/") for name, value in fields[image].items()})
            try:
                data = _fetch(url)
                kind = check_image(data).lower()
                replace_file(folder / f"{image}.{'jpg' if kind in ('jpeg', 'mpo') else kind}", data)
                break
            except (_NotThereError, ImageError) as error:
                reasons.append(f"{url}: {error}")
        else:
            failed[image] = "; ".join(reasons)

    # A complete list for the user; the message shows only one example.
    write_json(folder / "failed.json", failed, sort_keys=True)
    return failed


class _NotThereError(Exception):
    """The server does not have the file or could not be reached; the message says why."""


def _check_template(template: str, fields: Mapping[str, Mapping[str, str]]) -> str:
    # A path library may have collapsed the double slash.
    template = re.sub(r"^(https?):/+", r"\1://", template)
    available = {name for image_fields in fields.values() for name in image_fields}
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise BadInput(f"--images {template}: {error}. Write fields like {{file_name}}.") from None

    unknown = sorted(names - available)
    if unknown or not names:
        # Without a field, every image would have the same URL.
        problem = f"unknown field {unknown[0]!r}" if unknown else "contains no field, so all images would be the same"
        raise BadInput(f"--images {template}: {problem}. Fields: {', '.join(sorted(available))}.")

    return template


def _fetch(url: str) -> bytes:
    """Download a file; huggingface_hub's client retries while the server is busy or the connection
    breaks.
    """
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
