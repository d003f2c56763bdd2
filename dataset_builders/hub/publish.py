"""Publish a folder on the Hub: one commit with the differences, one tag.

Publishing the same folder again changes nothing and says so. Of a dataset, only files that a build
writes are published: README.md, manifest.json, eval.yaml, Parquet files named as data files,
licence texts. Other files are left out and reported, so that nothing is published by accident.

See also: the Hub's errors (`client.py`), changes of others (`merge.py`).
"""

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import HfApi, RepoCard

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.contents.card import check_deidentification_stated
from dataset_builders.contents.data_files import (
    CARD_FILE,
    folder_config_entries,
    group_data_files,
    update_card_configs,
)
from dataset_builders.errors import BadInput
from dataset_builders.hub.client import (
    check_repo_id,
    commit_files,
    hide_progress_bars,
    hub_errors,
    sign_in,
    with_retries,
)
from dataset_builders.hub.merge import FileContent, PublishChanges, merge_published
from dataset_builders.hub.repository import load_manifest
from dataset_builders.images.licences import allows_redistribution

METADATA_PATTERNS = ("manifest.json", "eval.yaml", "LICENSE*", "LICENCE*", "NOTICE*", "CITATION*")
BUILT_FOLDER_REMEDY = "Give a folder that `medprobe build` wrote."
SPACE_PACKAGES = ("dataset_builders", "eval_harness")
"""The layers below the board, uploaded with it because a Space build sees only its own folder.

They are about 2 MB of text. Libraries that a Space lacks (torch, transformers) are imported inside
the functions that need them, which a test checks.
"""
IGNORED_NAMES = frozenset({"__pycache__", ".git", ".ipynb_checkpoints"})

LAUNCHER = '''"""Start the board, from the wheel beside this file if there is one. Written by `medprobe publish --space`."""

import os
import runpy
import sys
import tempfile
import zipfile
from pathlib import Path

for wheel in Path(__file__).parent.glob("*.whl"):  # a pure-Python wheel works when unpacked
    place = tempfile.mkdtemp(prefix="medprobe-")
    zipfile.ZipFile(wheel).extractall(place)
    sys.path.insert(0, place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))  # for child processes
runpy.run_module("{package}.app", run_name="__main__")
'''
READ_PRIVATE_SCOPE = "read-repos"
"""OAuth scope that lets a signed-in user's token read a private store, to open a pull request to
it.
"""


@dataclass(frozen=True)
class PublishReport:
    """Outcome of publishing. `commit` is the head of main; `committed` is False if nothing had to
    change.
    """

    repo_id: str
    repo_type: str
    url: str
    commit: str
    created: bool
    committed: bool
    deleted: tuple[str, ...]
    preserved: tuple[str, ...]
    left_out: tuple[str, ...]
    private: bool
    tag: str | None = None
    tagged: bool = False
    configured: tuple[str, ...] = ()
    """Settings that were made or are still needed, a sentence each."""

    def __str__(self) -> str:
        lines = [
            f"published {self.repo_id}: all differences, in one commit {self.commit[:12]}"
            if self.committed
            else f"{self.repo_id} is up to date at {self.commit[:12]}: nothing uploaded, no commit made"
        ]
        if self.deleted:
            lines.append(f"deleted from an earlier version: {', '.join(self.deleted)}")
        if self.preserved:
            lines.append(f"changed there since the last publish, and preserved: {', '.join(self.preserved)}")
        if self.tag:
            lines.append(f"{'tagged' if self.tagged else 'already tagged'}: {self.tag}")
        if self.left_out:
            examples = ", ".join(self.left_out[:5]) + (", ..." if len(self.left_out) > 5 else "")
            lines.append(f"left out, not part of the repository: {len(self.left_out)} files ({examples})")
        lines += self.configured
        lines.append(f"{self.url}{' (private)' if self.private else ''}")
        if self.repo_type == "dataset":
            revision = f', revision="{self.tag}"' if self.tag else ""
            lines.append(f'load_dataset("{self.repo_id}"{revision})')
        return "\n".join(lines)


def publish(
    folder: str | Path,
    repo_id: str,
    private: bool = False,
    tag: str | None = None,
    space: bool = False,
    notes: str | None = None,
    gated: Literal["auto", "manual"] | None = None,
    results: str | None = None,
    data: Sequence[str] = (),
    wheel: str | Path | None = None,
) -> PublishReport:
    """Publish a dataset folder, or with `space` the board's folder, and tag the version.

    Idempotent: existing files are not sent again, and without differences no commit is made. If
    others commit in between, the commit is retried on top of theirs. The Hub is the one
    at $HF_ENDPOINT.

    Args:
        folder: the folder to publish.
        repo_id: ORG/NAME of the repository.
        private: create a private repository.
        tag: name of the version.
        space: publish the board instead of a dataset.
        notes: what is new, as description of the commit and message of the tag.
        gated: readers of a dataset must request access, granted automatically or by the owner.
        results: the results store that the Space shows; set as a variable and listed in its card.
        data: the datasets (ORG/NAME) that the Space shows; also set and listed.
        wheel: a medprobe wheel that the Space runs instead of copies of the packages.

    Raises:
        BadInput: no token or permission, gated, offline, an invalid id, a tag of another version,
            or a folder that must not be published.
    """
    check_repo_id(repo_id)
    folder = Path(folder)
    if notes and not tag:
        raise BadInput("--notes: needs a version. Name it with --tag.")
    if (results or data or wheel) and not space:
        raise BadInput("--results, --data, --wheel: apply to a board only. Add --space.")
    if gated and space:
        raise BadInput("--gated: applies to datasets, not to Spaces. Omit it, or add --private.")
    shown_datasets = [*([results] if results else []), *data]
    for dataset in shown_datasets:
        check_repo_id(dataset)

    kind = "space" if space else "dataset"
    files: Mapping[str, FileContent]
    wheel_path = None if wheel is None else Path(wheel)
    files, left_out = (
        select_space_files(folder, shown_datasets, wheel_path)
        if space
        else select_dataset_files(folder, repo_id, private)
    )
    api, account = sign_in(repo_id)

    # Whether a shown dataset is private is known only after signing in.
    private_shown = _find_private(api, shown_datasets, account)
    if private_shown:
        files, left_out = select_space_files(folder, shown_datasets, wheel_path, private=True)
    with hide_progress_bars(), hub_errors(repo_id, "publish it", account):
        created = not with_retries(lambda: api.repo_exists(repo_id, repo_type=kind))
        if created:
            sdk = "gradio" if space else None

            # None lets the organisation's default visibility apply.
            hidden = private or None
            with_retries(lambda: api.create_repo(repo_id, repo_type=kind, private=hidden, exist_ok=True, space_sdk=sdk))

        # Read the tag before the head of main: read afterwards, it could name a newer commit.
        tagged = with_retries(lambda: _tag_commit(api, repo_id, kind, tag))
        info = with_retries(lambda: api.repo_info(repo_id, repo_type=kind))
        if private and not info.private:
            raise BadInput(f"{repo_id}: exists and is public. Make it private on the Hub, or choose another name.")

        # A tag of another commit is an error before anything is uploaded.
        _check_tag(repo_id, tag, tagged or str(info.sha), str(info.sha))
        configured = _set_gating(api, repo_id, gated) if gated else []
        configured += _set_variables(api, repo_id, results, data, private_shown) if shown_datasets else []
        head, changes = _commit_changes(api, repo_id, kind, files, notes)

    if tag:
        with hub_errors(
            repo_id,
            f"set the tag {tag} (the files are published; run this again for the tag)",
            account,
        ):
            _create_tag(api, repo_id, kind, tag, head, notes)

    return PublishReport(
        repo_id=repo_id,
        repo_type=kind,
        url=f"{api.endpoint}/{kind}s/{repo_id}",
        commit=head,
        created=created,
        committed=head != info.sha,
        deleted=tuple(path for path, content in changes.write.items() if content is None),
        preserved=tuple(changes.preserved),
        left_out=tuple(left_out),
        private=bool(info.private),
        tag=tag,
        tagged=tag is not None and tagged is None,
        configured=tuple(configured),
    )


def _set_gating(api: HfApi, repo_id: str, gated: Literal["auto", "manual"]) -> list[str]:
    """Require readers to request access, before any data is uploaded."""
    if with_retries(lambda: api.repo_info(repo_id, repo_type="dataset")).gated != gated:
        with_retries(lambda: api.update_repo_settings(repo_id, gated=gated, repo_type="dataset"))
    granted = "automatically" if gated == "auto" else "by the owner"
    return [f"gated: readers must request access, which is granted {granted}"]


def _set_variables(api: HfApi, repo_id: str, results: str | None, data: Sequence[str], private: list[str]) -> list[str]:
    """Set the Space's variables that differ; report them and the secret needed for private
    repositories.
    """
    stated = {"MEDPROBE_RESULTS": results, "MEDPROBE_DATA": " ".join(data)}
    variables = {name: value for name, value in stated.items() if value}
    current = with_retries(lambda: api.get_space_variables(repo_id))
    for name, value in variables.items():
        if name not in current or current[name].value != value:
            with_retries(partial(api.add_space_variable, repo_id, name, value))

    done = [f"variable {name}: {value}" for name, value in variables.items()]
    if private:
        done += [
            f"still needed: the secret HF_TOKEN, a token that can read {' and '.join(private)} (private)",
            f"the card also requests the scope {READ_PRIVATE_SCOPE} from users who sign in: without it they cannot submit there",
        ]
    return done


def _find_private(api: HfApi, names: Sequence[str], account: str) -> list[str]:
    """Return the names of those dataset repositories that are private.

    Raises BadInput if one is not visible.
    """
    private = []
    for name in dict.fromkeys(names):
        with hub_errors(name, "show it on the board", account):
            info = with_retries(partial(api.repo_info, name, repo_type="dataset"))
        private += [name] if info.private else []
    return private


def _commit_changes(
    api: HfApi, repo_id: str, kind: str, files: Mapping[str, FileContent], notes: str | None
) -> tuple[str, PublishChanges]:
    """Make main equal to `files` in at most one commit.

    Returns a commit with these files, and the changes of the first attempt.

    Each attempt compares anew: if only the response of a successful commit was lost, nothing is
    left to do.
    """
    tries: list[PublishChanges] = []

    def attempt() -> str:
        info = api.repo_info(repo_id, repo_type=kind, files_metadata=True)
        siblings = getattr(info, "siblings", None) or ()  # records of other repository types have none
        stored = {file.rfilename: file.lfs.sha256 if file.lfs else str(file.blob_id) for file in siblings}

        def read(path: str) -> bytes:
            return Path(api.hf_hub_download(repo_id, path, repo_type=kind, revision=info.sha)).read_bytes()

        changes = merge_published(repo_id, files, stored, read)
        tries.append(changes)
        if not changes.write:
            return str(info.sha)
        return commit_files(api, repo_id, changes.write, "Publish", kind, description=notes, parent=info.sha).oid

    return with_retries(attempt), tries[0]


def _tag_commit(api: HfApi, repo_id: str, kind: str, tag: str | None) -> str | None:
    """Return the commit that a tag names; None if the tag does not exist."""
    tags = api.list_repo_refs(repo_id, repo_type=kind).tags if tag else []
    return next((ref.target_commit for ref in tags if ref.name == tag), None)


def _create_tag(api: HfApi, repo_id: str, kind: str, tag: str, head: str, notes: str | None) -> None:
    """Tag the commit `head`. Raises BadInput if the tag names another commit, such as an older
    version.
    """
    # Another process may create the tag at the same time: create, then check what it names.
    if with_retries(lambda: _tag_commit(api, repo_id, kind, tag)) is None:
        with_retries(
            lambda: api.create_tag(repo_id, tag=tag, tag_message=notes, revision=head, repo_type=kind, exist_ok=True)
        )
    _check_tag(repo_id, tag, with_retries(lambda: _tag_commit(api, repo_id, kind, tag)), head)


def _check_tag(repo_id: str, tag: str | None, tagged: str | None, head: str) -> None:
    if tagged != head:
        raise BadInput(
            f"{repo_id}: the tag {tag} names another version ({str(tagged)[:12]}) and is not moved. "
            "Choose a new tag for the content of main."
        )


def select_dataset_files(folder: Path, repo_id: str, private: bool) -> tuple[dict[str, Path | bytes], list[str]]:
    """Select the files of a dataset folder to publish.

    Args:
        folder: a folder that `medprobe build` wrote.
        repo_id: where it will be published.
        private: whether the repository is private.

    Returns:
        (path in the repository -> file or content, paths of the files that are left out).

    Raises:
        BadInput: the folder is not a complete dataset repository; it contains phantoms and
            `repo_id` has a benchmark's official name; or, unless `private`, it contains test
            answers or images whose licence forbids redistribution.
    """
    present = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    data = group_data_files(present)
    if not (folder / "README.md").is_file() or not data:
        raise BadInput(f"{folder}: is not a dataset repository (a README.md and Parquet files). {BUILT_FOLDER_REMEDY}")
    manifest = load_manifest(folder)

    # Names that differ only in separators would still be mistaken for the benchmark.
    if manifest.get("origin") == "phantom" and re.sub(r"[-_.]+", "-", repo_id.split("/")[1].lower()) in BENCHMARKS:
        raise BadInput(
            f"{repo_id}: is the official name of a benchmark, but this folder contains phantoms. "
            f"Choose another name, e.g. {repo_id}-phantoms."
        )

    check_deidentification_stated(manifest)
    if not private and ("answers_of" in manifest or "answers" in data):
        raise BadInput(f"{folder}: contains the hidden answers of a test, which must not become public. Add --private.")
    paths = [path for splits in data.values() for names in splits.values() for path in names]
    refused = {licence for path in paths for licence in _restricted_licences(folder / path)}
    if refused and "questions" in data and not private:
        raise BadInput(
            f"{folder}: contains images without a licence that permits redistribution ({', '.join(sorted(refused))}). "
            "Publish them with --private, or build with --text-only."
        )

    files: dict[str, Path | bytes] = {path: folder / path for path in paths}
    for pattern in METADATA_PATTERNS:
        files |= {path.name: path for path in folder.glob(pattern) if path.is_file()}

    # The card may have been edited: rewrite its record of the data files.
    text = (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace")
    files[CARD_FILE] = update_card_configs(text, folder_config_entries(folder), folder / CARD_FILE).encode()
    return dict(sorted(files.items())), sorted(set(present) - files.keys())


def _restricted_licences(path: Path) -> set[str]:
    """Return the licences in a file's rows that do not permit redistribution."""
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "image_license" not in names:
                return {"none stated"} if "image" in names else set()
            stated = file.read(columns=["image_license"])["image_license"].unique().to_pylist()
    except (pa.ArrowException, OSError):
        raise BadInput(f"{path}: is damaged or not a Parquet file. {BUILT_FOLDER_REMEDY}") from None
    return {str(licence or "none stated") for licence in stated if not allows_redistribution(licence)}


def select_space_files(
    folder: Path, datasets: Sequence[str] = (), wheel: Path | None = None, private: bool = False
) -> tuple[dict[str, Path | bytes], list[str]]:
    """Collect the files of a Space that runs the board.

    README.md (the Space's card) and requirements.txt go to the top, where a Space expects them,
    with an app.py that starts the package: from the wheel, or from the packages under their own
    names, so that imports work.

    Args:
        folder: the board's package.
        datasets: the repositories that the board shows; listed in the card.
        wheel: a medprobe wheel to run; None to upload the packages.
        private: a shown repository is private, so the card requests the scope to read it.

    Returns:
        (path in the Space -> file or content, files left out).

    Raises:
        BadInput: the folder is not the board's package, or the file not a medprobe wheel.
    """
    folder = folder.resolve()
    for name in ("app.py", "README.md", "requirements.txt", "__init__.py"):
        if not (folder / name).is_file():
            raise BadInput(
                f"{folder}: is not the board's Space folder ({name} is missing). Give the folder leaderboard_space."
            )

    files: dict[str, Path | bytes] = {"app.py": LAUNCHER.format(package=folder.name).encode()}
    files |= {name: folder / name for name in ("README.md", "requirements.txt")}
    if datasets:
        card = RepoCard.load(folder / "README.md")
        card.data["datasets"] = list(datasets)
        if private:
            card.data["hf_oauth_scopes"] = list(
                dict.fromkeys([*card.data.get("hf_oauth_scopes", []), READ_PRIVATE_SCOPE])
            )
        files["README.md"] = str(card).encode()

    if wheel is not None:
        _check_wheel(wheel, folder.name)
        return {**files, wheel.name: wheel}, []
    left_out = []
    for relative_path, path in _iter_files(folder):
        # Hidden files may contain credentials.
        if any(part.startswith(".") for part in Path(relative_path).parts):
            left_out.append(relative_path)
        elif relative_path not in files or relative_path == "app.py":
            files[f"{folder.name}/{relative_path}"] = path

    # Copy the packages from where this one is: a checkout, or an installation.
    packages_root = Path(__file__).resolve().parents[2]
    for package in SPACE_PACKAGES:
        files |= {f"{package}/{relative_path}": path for relative_path, path in _iter_files(packages_root / package)}

    return dict(sorted(files.items())), left_out


def _check_wheel(wheel: Path, package: str) -> None:
    if not zipfile.is_zipfile(wheel) or f"{package}/app.py" not in zipfile.ZipFile(wheel).namelist():
        raise BadInput(f"--wheel {wheel}: is not a medprobe wheel. Build one in its folder: `pip wheel --no-deps .`")


def _iter_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative path, path) of every file except those that Python and editors create."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not IGNORED_NAMES & set(inside.parts):
            yield inside.as_posix(), path
