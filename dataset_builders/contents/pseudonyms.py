"""Replace names by keyed hashes: ids that reveal nothing about file or patient but are reproducible
with the key.

The key is stored beside its set (`NAME.key`, readable by the owner only), never in it. With
the key, the id of a known name can be computed; without it, guessing names reveals nothing.
"""

import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.schema import Case, CaseImage, Question, SourceContent

KEYED_IDS = "keyed-1"
"""Value of `ids` in a source's manifest if its ids, image names and groups are already keyed
hashes.
"""
HASH_HEX_DIGITS = 16
"""Hexadecimal digits kept of a hash.

In a set of a million names, the chance that any two share an id is 1 in 37 million.
"""


@dataclass(frozen=True)
class Pseudonyms:
    """Map names to ids under one key."""

    key: bytes

    def id_for(self, kind: str, name: str) -> str:
        """Compute the id of a name: `kind`, a hyphen, and 16 hexadecimal digits of HMAC-SHA256.

        Args:
            kind: a letter or word, such as "i" for images; each kind has its own ids.
            name: the name to replace.

        >>> Pseudonyms(b"0" * 32).id_for("i", "Miller_1961.png")
        'i-aa50b7128796c139'
        """
        # NUL separates kind and name, so that no other combination gives the same bytes.
        digest = hmac.new(self.key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:HASH_HEX_DIGITS]}"

    def group(self, name: str) -> str:
        """Return the id of a patient, study or article, independent of Unicode form and spacing; ""
        stays "".
        """
        name = normalize_group_name(name)
        return self.id_for("g", name) if name else ""


def normalize_group_name(name: str) -> str:
    """Normalise accents (NFC) and spaces in the name of a group."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def key_path(folder: Path) -> Path:
    """Return the path of a set's key, beside the set's folder."""
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}.key")


def withdrawn_list_path(folder: Path) -> Path:
    """Return the path of a set's list of withdrawals, beside its key.

    It has one keyed id per line: groups (g-...) and images (i-...).
    """
    return key_path(folder).with_suffix(".withdrawn")


def read_withdrawn_ids(*folders: Path) -> frozenset[str]:
    """Read the keyed ids on the withdrawal lists beside these folders."""
    lists = [withdrawn_list_path(folder) for folder in folders]
    return frozenset(word for path in lists if path.is_file() for word in path.read_text(encoding="ascii").split())


def record_withdrawn_ids(folder: Path, ids: Iterable[str]) -> None:
    """Add keyed ids to a set's withdrawal list, readable by the owner only.

    Args:
        folder: the set.
        ids: keyed ids of groups and images.
    """
    path = withdrawn_list_path(folder)
    lines = sorted({*read_withdrawn_ids(folder), *ids})
    replace_file(path, "".join(f"{line}\n" for line in lines).encode("ascii"))

    # The ids on the list reveal that somebody withdrew.
    path.chmod(0o600)


def load_pseudonyms(folder: Path, also: Path | None = None) -> Pseudonyms:
    """Load the key of a set, creating it if there is none.

    Args:
        folder: the set.
        also: another folder whose key is used if `folder` has none.

    Raises:
        BadInput: the key is damaged or cannot be written.
    """
    for candidate in (folder, *([also] if also else [])):
        if key_path(candidate).is_file():
            return Pseudonyms(_read_key(key_path(candidate)))

    path = key_path(folder)
    key = secrets.token_bytes(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)

        # O_EXCL: two processes must not create different keys. Mode 600 before the key is written.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            try:
                file.write(key.hex() + "\n")
                file.flush()
            except OSError:  # disk full: an empty key file would block every later run
                path.unlink()
                raise
    except FileExistsError:  # another process created it in the meantime
        return Pseudonyms(_read_key(path))
    except OSError as error:
        raise BadInput(f"{path}: the key for the ids cannot be written there ({error.strerror}).") from None

    return Pseudonyms(key)


def _read_key(path: Path) -> bytes:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise BadInput(
            f"{path}: is not a key (64 hexadecimal digits). Restore it from a backup; without it, all ids would change."
        )
    return bytes.fromhex(text)


def pseudonymize_content(content: SourceContent, pseudonyms: Pseudonyms) -> SourceContent:
    """Replace ids and names in a set by keyed hashes.

    This covers ids of questions, cases, images, pairs and groups, and image file names. Notes that
    contain a name are dropped.

    Args:
        content: what the reader returned.
        pseudonyms: the set's key.
    """
    names: set[str] = set()

    def keyed(kind: str, name: str) -> str:
        # Remember every replaced name, to drop notes that quote one.
        names.add(name)
        return pseudonyms.id_for(kind, name)

    def keyed_image(image: CaseImage) -> CaseImage:
        names.add(image.name)
        image_id = keyed("i", image.image_id)
        return replace(image, image_id=image_id, name=image_id, group=pseudonyms.group(image.group or "") or None)

    def keyed_question(question: Question) -> Question:
        return replace(
            question,
            question_id=keyed("q", question.question_id),
            case_id=keyed("c", question.case_id),
            image_id=keyed("i", question.image_id),
            more_image_ids=tuple(keyed("i", name) for name in question.more_image_ids),
            extra={k: keyed("p", v) if k == "pair_id" and v else v for k, v in question.extra.items()},
        )

    def keyed_case(case: Case) -> Case:
        images, questions = map(keyed_image, case.images), map(keyed_question, case.questions)
        return Case(keyed("c", case.case_id), tuple(images), tuple(questions))

    keyed_content = content.map_cases(keyed_case)
    hidden = {keyed("q", name): answer for name, answer in content.hidden_answers.items()}
    notes = [note for note in content.notes if not any(name and name in note for name in names)]
    return replace(keyed_content, hidden_answers=hidden, notes=notes)
