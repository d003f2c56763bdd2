"""Keyed hashes in place of names: ids that reveal nothing of the file or patient, and are the same under the same key.

The key lies beside the set it was made for (`NAME.key`, readable by its owner alone) and is never part of it. With the
key, the id of a known name can be computed; without it, trying names reveals nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.schema import Case, CaseImage, SourceContent

KEYED_IDS = "keyed-1"
"""Value of `ids` in the manifest of a source whose ids, image names and groups are keyed hashes already."""
HASH_HEX_DIGITS = 16
"""Hexadecimal digits of a hash that are kept: among a million names two share an id once in 37 million sets."""


@dataclass(frozen=True)
class Pseudonyms:
    """Names -> ids under one key."""

    key: bytes

    def id_for(self, kind: str, name: str) -> str:
        """The id of a name: `kind` (a letter or word), a hyphen, 16 hexadecimal digits of HMAC-SHA256.

        >>> Pseudonyms(b"0" * 32).id_for("i", "Miller_1961.png")
        'i-aa50b7128796c139'
        """
        digest = hmac.new(self.key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:HASH_HEX_DIGITS]}"

    def group(self, name: str) -> str:
        """The id of a patient, study or article, however its accents are coded and its spaces set; "" stays ""."""
        name = normalize_group_name(name)
        return self.id_for("g", name) if name else ""


def normalize_group_name(name: str) -> str:
    """The name of a group with its accents and spaces coded in one way."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def key_path(folder: Path) -> Path:
    """Path of a set's key: beside its folder."""
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}.key")


def withdrawn_list_path(folder: Path) -> Path:
    """Path of the list of who has withdrawn from a set: beside its key, one keyed id a line, of groups (g-...) and of images (i-...)."""
    return key_path(folder).with_suffix(".withdrawn")


def read_withdrawn_ids(*folders: Path) -> frozenset[str]:
    """The keyed ids on the lists beside these folders."""
    lists = [withdrawn_list_path(folder) for folder in folders]
    return frozenset(word for path in lists if path.is_file() for word in path.read_text(encoding="ascii").split())


def record_withdrawn_ids(folder: Path, ids: Iterable[str]) -> None:
    """Add keyed ids to a set's list, readable by its owner alone."""
    path = withdrawn_list_path(folder)
    lines = sorted({*read_withdrawn_ids(folder), *ids})
    replace_file(path, "".join(f"{line}\n" for line in lines).encode("ascii"))
    path.chmod(0o600)


def load_pseudonyms(folder: Path, also: Path | None = None) -> Pseudonyms:
    """The pseudonyms of a set by the key beside it (failing that, beside `also`); a key is made where there is none.

    Raises BadInput for a key that is damaged or cannot be written.
    """
    for candidate in (folder, *([also] if also else [])):
        if key_path(candidate).is_file():
            return Pseudonyms(_read_key(key_path(candidate)))
    path = key_path(folder)
    key = secrets.token_bytes(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            try:
                file.write(key.hex() + "\n")
                file.flush()
            except OSError:  # a full disk: an empty file would stop every later run
                path.unlink()
                raise
    except FileExistsError:  # another process made one meanwhile
        return Pseudonyms(_read_key(path))
    except OSError as error:
        raise BadInput(f"{path}: the key for the ids cannot be written there ({error.strerror}).") from None
    return Pseudonyms(key)


def _read_key(path: Path) -> bytes:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise BadInput(
            f"{path}: is not a key (64 hexadecimal digits). Restore it from a copy; other ids would be made without it."
        )
    return bytes.fromhex(text)


def pseudonymize_content(content: SourceContent, pseudonyms: Pseudonyms) -> SourceContent:
    """The same content under keyed hashes: ids of questions, cases, images, pairs and groups, names of image files. Notes
    that hold a name are left out."""
    names: dict[str, str] = {}

    def keyed(kind: str) -> Callable[[str], str]:
        def new(name: str) -> str:
            made = pseudonyms.id_for(kind, name)
            names.setdefault(name, made)
            return made

        return new

    question, case, image, pair = keyed("q"), keyed("c"), keyed("i"), keyed("p")

    def of_image(old: CaseImage) -> CaseImage:
        made = image(old.image_id)
        names.setdefault(old.name, made)
        return replace(old, image_id=made, name=made, group=pseudonyms.group(old.group or "") or None)

    def of_case(old: Case) -> Case:
        questions = tuple(
            replace(
                known,
                question_id=question(known.question_id),
                case_id=case(known.case_id),
                image_id=image(known.image_id),
                more_image_ids=tuple(map(image, known.more_image_ids)),
                extra={k: pair(v) if k == "pair_id" and v else v for k, v in known.extra.items()},
            )
            for known in old.questions
        )
        return Case(case(old.case_id), tuple(of_image(each) for each in old.images), questions)

    def of_splits(old: dict[str, list[Case]]) -> dict[str, list[Case]]:
        return {split: [of_case(each) for each in cases] for split, cases in old.items()}

    cases = of_splits(content.cases)
    more = {config: of_splits(splits) for config, splits in content.more.items()}
    hidden = {question(name): answer for name, answer in content.hidden.items()}
    notes = [note for note in content.notes if not any(name and name in note for name in names)]
    return replace(content, cases=cases, more=more, hidden=hidden, notes=notes)
