"""Publish a folder on the Hub: one commit with what differs, one tag. Publishing the same folder again changes nothing and says so.

See also: which files belong to a repository (`dataset_files.py`), the Hub's errors (`client.py`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dataset_builders.errors import BadInput
from dataset_builders.hub.client import check_repo_id, hide_progress_bars, hub_errors, sign_in, with_retries
from dataset_builders.hub.commits import commit_files
from dataset_builders.hub.dataset_files import select_dataset_files
from dataset_builders.hub.merge import FileContent, PublishChanges, merge_published

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SPACE_PACKAGES = ("dataset_builders", "eval_harness")
"""The layers below the board. A Space build sees only its own folder, so these packages are uploaded with it (about 2 MB of text).
Libraries that a Space lacks (torch, transformers) are imported inside the functions that need them, which a test checks."""
IGNORED_NAMES = frozenset({"__pycache__", ".git", ".ipynb_checkpoints"})

LAUNCHER = '''"""Starts the board, from the wheel beside this file where there is one. Written by `medprobe publish --space`."""

import os
import runpy
import sys
import tempfile
import zipfile
from pathlib import Path

for wheel in Path(__file__).parent.glob("*.whl"):  # unpacked, a wheel without compiled parts is what installing it gives
    place = tempfile.mkdtemp(prefix="medprobe-")
    zipfile.ZipFile(wheel).extractall(place)
    sys.path.insert(0, place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))  # for processes that it starts
runpy.run_module("{package}.app", run_name="__main__")
'''
READ_PRIVATE_SCOPE = "read-repos"
"""The OAuth scope with which a signed-in reader's token may read a private store, to open a pull request to it."""


@dataclass(frozen=True)
class PublishReport:
    """Outcome of publishing. `commit` is the head of main; `committed` is False if nothing had to change."""

    repo_id: str
    repo_type: str
    url: str
    commit: str
    created: bool
    committed: bool
    deleted: tuple[str, ...]
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    private: bool
    tag: str | None = None
    tagged: bool = False
    configured: tuple[str, ...] = ()
    """Settings made or still to be made, a sentence each."""

    def __str__(self) -> str:
        lines = [
            f"published {self.repo_id}: what differs, in one commit {self.commit[:12]}"
            if self.committed
            else f"{self.repo_id} is up to date at {self.commit[:12]}: nothing uploaded, no commit made"
        ]
        if self.deleted:
            lines.append(f"deleted from an earlier version: {', '.join(self.deleted)}")
        if self.kept:
            lines.append(f"changed there since the last publish, and left so: {', '.join(self.kept)}")
        if self.tag:
            lines.append(f"{'tagged' if self.tagged else 'was tagged already'}: {self.tag}")
        if self.left_out:
            shown = ", ".join(self.left_out[:5]) + (", ..." if len(self.left_out) > 5 else "")
            lines.append(f"left out, not part of the repository: {len(self.left_out)} files ({shown})")
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
    """Publish a dataset folder (or with `space` the board's folder) as `repo_id`, and tag the version.

    `notes`: what is new in this version, the description of its commit and the message of the tag. `gated`: readers of a dataset ask for
    access, which is granted at once or by the owner. `results`, `data`: the results store and the datasets (ORG/NAME) that the Space shows;
    they become its variables and stand in its card. `wheel`: of medprobe, which the Space runs instead of copies of the packages. The Hub
    is the one of $HF_ENDPOINT.
    Idempotent: files that are there already are not sent, and when nothing differs no commit is
    made. If others commit in between, the commit is retried on top of theirs.
    Raises BadInput: no token, no rights, gated, offline, a bad id, a tag that names another version, a folder that may not be published.
    """
    check_repo_id(repo_id)
    folder = Path(folder)
    if notes and not tag:
        raise BadInput("--notes: needs a version. Name it with --tag.")
    if (results or data or wheel) and not space:
        raise BadInput("--results, --data, --wheel: are what a board shows and runs. Add --space.")
    if gated and space:
        raise BadInput("--gated: is a setting of datasets, not of Spaces. Leave it out, or add --private.")
    shown = [*([results] if results else []), *data]
    for each in shown:
        check_repo_id(each)
    kind = "space" if space else "dataset"
    files: Mapping[str, FileContent]
    of_wheel = None if wheel is None else Path(wheel)
    files, left_out = (
        select_space_files(folder, shown, of_wheel) if space else select_dataset_files(folder, repo_id, private)
    )
    api, who = sign_in(repo_id)
    private_shown = _find_private(api, shown, who)
    if private_shown:
        files, left_out = select_space_files(folder, shown, of_wheel, private=True)
    with hide_progress_bars(), hub_errors(repo_id, "publish it", who):
        created = not with_retries(lambda: api.repo_exists(repo_id, repo_type=kind))
        if created:
            sdk = "gradio" if space else None
            hidden = private or None
            with_retries(lambda: api.create_repo(repo_id, repo_type=kind, private=hidden, exist_ok=True, space_sdk=sdk))
        # Read first, so that it is no newer than the commit.
        tagged = with_retries(lambda: _tag_commit(api, repo_id, kind, tag))
        info = with_retries(lambda: api.repo_info(repo_id, repo_type=kind))
        if private and not info.private:
            raise BadInput(f"{repo_id}: exists and is public. Make it private on the Hub, or choose another name.")
        if tagged not in (None, info.sha):
            raise _tag_conflict(repo_id, tag, tagged)
        configured = _set_gating(api, repo_id, gated) if gated else []
        configured += _set_variables(api, repo_id, results, data, private_shown) if shown else []
        head, changes = _commit_changes(api, repo_id, kind, files, notes)
    if tag:
        with hub_errors(repo_id, f"set the tag {tag} (the files are published; run this again for the tag)", who):
            _create_tag(api, repo_id, kind, tag, head, notes)
    return PublishReport(
        repo_id=repo_id,
        repo_type=kind,
        url=f"{api.endpoint}/{kind}s/{repo_id}",
        commit=head,
        created=created,
        committed=head != info.sha,
        deleted=tuple(path for path, content in changes.write.items() if content is None),
        kept=tuple(changes.kept),
        left_out=tuple(left_out),
        private=bool(info.private),
        tag=tag,
        tagged=tag is not None and tagged is None,
        configured=tuple(configured),
    )


def _set_gating(api: HfApi, repo_id: str, gated: Literal["auto", "manual"]) -> list[str]:
    """Require readers to request access; set before any data is uploaded."""
    if with_retries(lambda: api.repo_info(repo_id, repo_type="dataset")).gated != gated:
        with_retries(lambda: api.update_repo_settings(repo_id, gated=gated, repo_type="dataset"))
    granted = "at once" if gated == "auto" else "by the owner"
    return [f"gated: readers ask for access, which is granted {granted}"]


def _set_variables(api: HfApi, repo_id: str, results: str | None, data: Sequence[str], private: list[str]) -> list[str]:
    """Set the Space's variables that differ; report them, and the secret needed to read private repositories."""
    wanted = {"MEDPROBE_RESULTS": results, "MEDPROBE_DATA": " ".join(data)}
    there = with_retries(lambda: api.get_space_variables(repo_id))
    done = []
    for name, value in wanted.items():
        if value and (name not in there or there[name].value != value):
            with_retries(partial(api.add_space_variable, repo_id, name, value))
        if value:
            done.append(f"variable {name}: {value}")
    if private:
        done.append(f"still needed: the secret HF_TOKEN, a token that may read {' and '.join(private)} (private)")
        done.append(
            f"the card asks readers who sign in for the scope {READ_PRIVATE_SCOPE}, too: without it they cannot submit there"
        )
    return done


def _find_private(api: HfApi, names: Sequence[str], who: str) -> list[str]:
    """Those of the dataset repositories that are private. Raises BadInput for one that this account cannot see."""
    private = []
    for name in dict.fromkeys(names):
        with hub_errors(name, "show it on the board", who):
            if with_retries(partial(api.repo_info, name, repo_type="dataset")).private:
                private.append(name)
    return private


def _commit_changes(
    api: HfApi, repo_id: str, kind: str, files: Mapping[str, FileContent], notes: str | None
) -> tuple[str, PublishChanges]:
    """Bring main to `files`, in one commit or none; returns (a commit on main with these files, what the first try had to change).

    Each try looks again first: when an answer got lost on the way although the commit had landed, there is nothing left to do.
    """
    tries: list[PublishChanges] = []

    def attempt() -> str:
        info = api.repo_info(repo_id, repo_type=kind, files_metadata=True)
        siblings = getattr(info, "siblings", None) or ()  # a kernel's record, which is none of ours, has none
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
    """The commit that a tag names; None where there is no such tag."""
    tags = api.list_repo_refs(repo_id, repo_type=kind).tags if tag else []
    return next((ref.target_commit for ref in tags if ref.name == tag), None)


def _create_tag(api: HfApi, repo_id: str, kind: str, tag: str, head: str, notes: str | None) -> None:
    """Make `tag` name the commit `head`. Raises BadInput if it names another: the version before, whose tag was given again."""
    if with_retries(lambda: _tag_commit(api, repo_id, kind, tag)) is None:
        with_retries(
            lambda: api.create_tag(repo_id, tag=tag, tag_message=notes, revision=head, repo_type=kind, exist_ok=True)
        )
    now = with_retries(lambda: _tag_commit(api, repo_id, kind, tag))
    if now != head:
        raise _tag_conflict(repo_id, tag, now)


def _tag_conflict(repo_id: str, tag: str | None, commit: str | None) -> BadInput:
    return BadInput(
        f"{repo_id}: the tag {tag} names another version ({str(commit)[:12]}) and stays there. Give what main holds a new tag."
    )


def select_space_files(
    folder: Path, datasets: Sequence[str] = (), wheel: Path | None = None, private: bool = False
) -> tuple[dict[str, Path | bytes], list[str]]:
    """(path in the Space -> file or content, files left out).

    README.md (the Space's card, which names the `datasets` that the board shows) and requirements.txt go to the top, where a Space wants
    them, with an app.py that starts the package: from the `wheel`, or from the packages, which keep their names, so that imports hold.
    `private`: one of the datasets is, so that the card asks for the scope that reads it. Raises BadInput if the folder is no Space of
    that kind, or the file no wheel of medprobe.
    """
    from huggingface_hub import RepoCard

    folder = folder.resolve()
    for name in ("app.py", "README.md", "requirements.txt", "__init__.py"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder}: is no Space of the board: {name} is missing. Give the folder leaderboard_space.")
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
    for inside, path in _iter_files(folder):
        if any(part.startswith(".") for part in Path(inside).parts):
            left_out.append(inside)
        elif inside not in files or inside == "app.py":
            files[f"{folder.name}/{inside}"] = path
    ours = Path(__file__).resolve().parents[2]
    for package in SPACE_PACKAGES:
        files |= {f"{package}/{inside}": path for inside, path in _iter_files(ours / package)}
    return dict(sorted(files.items())), left_out


def _check_wheel(wheel: Path, package: str) -> None:
    if not zipfile.is_zipfile(wheel) or f"{package}/app.py" not in zipfile.ZipFile(wheel).namelist():
        raise BadInput(f"--wheel {wheel}: is no wheel of medprobe. Build one in its folder: `pip wheel --no-deps .`")


def _iter_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(path below the folder, path) of every file but what Python and editors leave there."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not IGNORED_NAMES & set(inside.parts):
            yield inside.as_posix(), path
