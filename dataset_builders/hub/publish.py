"""Publish a folder on the Hub: one commit with what differs, one tag. Publishing the same folder again changes nothing and says so.

See also: which files belong to a repository (`dataset_files.py`, `space_files.py`), the Hub's errors (`client.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dataset_builders.errors import BadInput
from dataset_builders.hub.client import check_repo_id, hub_errors, quiet, sign_in, with_retries
from dataset_builders.hub.commits import commit_files
from dataset_builders.hub.dataset_files import dataset_files
from dataset_builders.hub.space_files import READ_PRIVATE, space_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

OURS = {"dataset": (".parquet",), "space": (".py", ".css", ".js", ".csv", ".html", ".whl")}
"""Files of these kinds that a repository holds and the folder does not are left from an earlier version, and are deleted with the same
commit: a stale Parquet file would be loaded as data. Other files that the repository has of its own are kept."""

Content = Path | bytes


@dataclass(frozen=True)
class PublishReport:
    """What was done. `commit` is what main points to now; `committed` is False when nothing had to change."""

    repo_id: str
    repo_type: str
    url: str
    commit: str
    created: bool
    committed: bool
    uploaded: tuple[str, ...]
    deleted: tuple[str, ...]
    unchanged: int
    left_out: tuple[str, ...]
    private: bool
    tag: str | None = None
    tagged: bool = False
    configured: tuple[str, ...] = ()
    """Settings made or still to be made, a sentence each."""

    def __str__(self) -> str:
        lines = []
        if self.committed:
            done = f"published {self.repo_id}: {len(self.uploaded)} files in one commit {self.commit[:12]}"
            lines.append(done + (f", {self.unchanged} unchanged" if self.unchanged else ""))
            if self.deleted:
                lines.append(f"deleted from an earlier version: {', '.join(self.deleted)}")
        else:
            lines.append(f"{self.repo_id} is up to date at {self.commit[:12]}: nothing uploaded, no commit made")
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


@dataclass(frozen=True)
class _RepositoryState:
    """A repository as it is now: its newest commit, its files by path, the commit of each tag."""

    head: str | None
    private: bool
    files: Mapping[str, RepoFile] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


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
    made. A commit that others get in between of is tried again on top of theirs.
    Raises BadInput: no token, no rights, gated, offline, a bad id, a tag that names another version, a folder that may not be published.
    """
    check_repo_id(repo_id)
    folder = Path(folder)
    _check_tag(tag)
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
    files: Mapping[str, Content]
    of_wheel = None if wheel is None else Path(wheel)
    files, left_out = space_files(folder, shown, of_wheel) if space else dataset_files(folder, repo_id, private)
    api, who = sign_in(repo_id)
    private_shown = _private_of(api, shown, who)
    if private_shown:
        files, left_out = space_files(folder, shown, of_wheel, private=True)
    with quiet(), hub_errors(repo_id, "publish it", who):
        created = not with_retries(lambda: api.repo_exists(repo_id, repo_type=kind))
        if created:
            sdk = "gradio" if space else None
            with hub_errors(repo_id, "create it", who):
                with_retries(
                    lambda: api.create_repo(
                        repo_id, repo_type=kind, private=private or None, exist_ok=True, space_sdk=sdk
                    )
                )
        configured = _gate(api, repo_id, gated) if gated else []
        configured += _set_variables(api, repo_id, results, data, private_shown) if shown else []
        now, uploaded, deleted = _commit(api, repo_id, kind, files, tag, notes, private)
        assert now.head is not None
        tagged = _tag(api, repo_id, kind, tag, now.head, files, who, notes) if tag else False
    return PublishReport(
        repo_id=repo_id,
        repo_type=kind,
        url=f"{api.endpoint}/{kind}s/{repo_id}",
        commit=now.head,
        created=created,
        committed=bool(uploaded or deleted),
        uploaded=tuple(uploaded),
        deleted=tuple(deleted),
        unchanged=len(files) - len(uploaded),
        left_out=tuple(left_out),
        private=now.private,
        tag=tag,
        tagged=tagged,
        configured=tuple(configured),
    )


def _check_tag(tag: str | None) -> None:
    """The rules of `git check-ref-format` that a version could break."""
    if tag is None:
        return
    bad = any(ord(c) <= 32 or c in "~^:?*[\\\x7f" for c in tag) or ".." in tag or "@{" in tag or "//" in tag
    if not tag or bad or tag.startswith(("-", ".", "/")) or tag.endswith((".", "/", ".lock")) or tag == "main":
        raise BadInput(f"--tag {tag!r}: cannot be a tag. Give a version such as v1.0.0.")


def _look(api: HfApi, repo_id: str, kind: str) -> _RepositoryState:
    """The repository's state. Another's commit in between cannot mix two states: tags that are read first are no newer than the commit,
    and the files are those of this commit and not of main."""
    refs = api.list_repo_refs(repo_id, repo_type=kind)
    info = api.repo_info(repo_id, repo_type=kind)
    files = _files_at(api, repo_id, kind, info.sha) if info.sha else {}
    return _RepositoryState(info.sha, bool(info.private), files, {ref.name: ref.target_commit for ref in refs.tags})


def _files_at(api: HfApi, repo_id: str, kind: str, commit: str) -> dict[str, RepoFile]:
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.hf_api import RepoFile

    try:
        entries = [*api.list_repo_tree(repo_id, recursive=True, repo_type=kind, revision=commit)]
    except EntryNotFoundError:  # a commit without any file
        return {}
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


def _gate(api: HfApi, repo_id: str, gated: Literal["auto", "manual"]) -> list[str]:
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
            f"the card asks readers who sign in for the scope {READ_PRIVATE}, too: without it they cannot submit there"
        )
    return done


def _private_of(api: HfApi, names: Sequence[str], who: str) -> list[str]:
    """Those of the dataset repositories that are private. Raises BadInput for one that this account cannot see."""
    private = []
    for name in dict.fromkeys(names):
        with hub_errors(name, "show it on the board", who):
            if with_retries(partial(api.repo_info, name, repo_type="dataset")).private:
                private.append(name)
    return private


def _commit(
    api: HfApi, repo_id: str, kind: str, files: Mapping[str, Content], tag: str | None, notes: str | None, private: bool
) -> tuple[_RepositoryState, list[str], list[str]]:
    """Bring main to what `files` are, in one commit or none; returns (state, paths sent, paths deleted).

    The state's `head` is a commit with these files: the one made here, or else the newest on main. Each try looks again first: when an
    answer got lost on the way although the commit had landed, there is nothing left to do.
    """
    sent: list[str] = []
    gone: list[str] = []

    def attempt() -> _RepositoryState:
        there = _look(api, repo_id, kind)
        if private and not there.private:
            raise BadInput(f"{repo_id}: exists and is public. Make it private on the Hub, or choose another name.")
        adding, stale = _differences(files, there.files, kind)
        if tag and tag in there.tags and (adding or stale):
            raise _names_another(repo_id, tag, there.tags[tag])
        if not adding and not stale:
            return there
        sent[:], gone[:] = adding, stale
        changed = {path: files[path] for path in adding} | dict.fromkeys(stale)
        title = f"Publish {tag}" if tag else "Publish"
        made = commit_files(api, repo_id, changed, title, kind, description=notes, parent=there.head or None)
        return replace(there, head=made.oid)

    return with_retries(attempt), sent, gone


def _differences(
    files: Mapping[str, Content], stored: Mapping[str, RepoFile], kind: str
) -> tuple[list[str], list[str]]:
    """(paths that the repository lacks or holds otherwise, paths left in it from an earlier version)."""
    adding = [path for path, content in files.items() if not _is_same(content, stored.get(path))]
    return adding, [path for path in stored if path not in files and path.endswith(OURS[kind])]


def _is_same(content: Content, stored: RepoFile | None) -> bool:
    """True where the repository holds these bytes; a file is only read where the sizes agree."""
    from huggingface_hub.utils.sha import git_hash, sha_fileobj

    size = content.stat().st_size if isinstance(content, Path) else len(content)
    if stored is None or stored.size != size:
        return False
    with content.open("rb") if isinstance(content, Path) else BytesIO(content) as file:
        if stored.lfs:
            return sha_fileobj(file).hex() == stored.lfs.sha256
        return git_hash(file.read()) == stored.blob_id


def _tag(
    api: HfApi, repo_id: str, kind: str, tag: str, head: str, files: Mapping[str, Content], who: str, notes: str | None
) -> bool:
    """Make `tag` name the commit `head`, which holds `files`; returns False where it names one with these files already.

    Raises BadInput where it names one with others.
    """

    def target() -> str | None:
        refs = api.list_repo_refs(repo_id, repo_type=kind).tags
        return next((ref.target_commit for ref in refs if ref.name == tag), None)

    with hub_errors(repo_id, f"set the tag {tag} (the files are published; run this again for the tag)", who):
        was_there = with_retries(target)
        if was_there is None:
            with_retries(
                lambda: api.create_tag(
                    repo_id, tag=tag, tag_message=notes, revision=head, repo_type=kind, exist_ok=True
                )
            )
        now = was_there or with_retries(target)
        if now != head and (now is None or any(_differences(files, _files_at(api, repo_id, kind, now), kind))):
            raise _names_another(repo_id, tag, now or "no commit")
    return was_there is None


def _names_another(repo_id: str, tag: str, commit: str) -> BadInput:
    return BadInput(
        f"{repo_id}: the tag {tag} names another version ({commit[:12]}), and this folder differs from it or from what came after. "
        "Choose a new tag."
    )
