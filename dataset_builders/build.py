"""Build a dataset repository: read a source, check its images, and write the folder completely or
not at all. Without a source, phantoms are drawn, to try everything offline.

See also: reading each format, and its phantoms (`benchmarks/*/`), writing files
(`repository_files.py`), publishing (`publish.py`).
"""

import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from dataset_builders.benchmark_names import ANY_SET, resolve_name
from dataset_builders.benchmarks import FORMATS, load_benchmark_module, spec
from dataset_builders.benchmarks.vqa.presets import PRESETS
from dataset_builders.case_groups import find_split_overlaps, format_overlaps
from dataset_builders.contents.card import Description, read_about
from dataset_builders.contents.pseudonyms import (
    KEYED_IDS,
    load_pseudonyms,
    pseudonymize_content,
    read_withdrawn_ids,
)
from dataset_builders.contents.repository_files import write_hidden_answers, write_repository
from dataset_builders.errors import BadInput, Problems, clip
from dataset_builders.files import temporary_folder, write_json
from dataset_builders.fingerprints import fingerprint_cases, is_released_set
from dataset_builders.images.download import download_missing, is_url_template
from dataset_builders.images.lookup import ImageFolders
from dataset_builders.schema import Case, SourceContent
from dataset_builders.source_files import (
    ORIGIN_MARKER,
    is_phantom_source,
    is_safe_relative_path,
    read_json,
)

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class BuildReport:
    """Outcome of a build; `str()` formats it for users, with the paper's counts and the source's
    oddities.
    """

    folder: Path
    name: str
    family: str
    origin: str
    partial: str | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"wrote {self.folder} ({self.name}, {self.origin})", *self.lines])


def build(
    benchmark: str,
    *,
    name: str | None = None,
    source: str | Path | None = None,
    images: Sequence[str | Path] = (),
    out: str | Path | None = None,
    allow_missing: bool = False,
    text_only: bool = False,
    eval_yaml: bool = False,
    fields: str = "",
    preset: str | None = None,
) -> BuildReport:
    """Build a benchmark, a custom set in its format, or (`vqa`) any set of visual questions.

    An existing dataset in `out` is replaced once the new one is complete.

    Args:
        benchmark: name of the benchmark or format.
        name: name of a custom set; None for the benchmark itself, or the preset's name.
        source: folder with the authors' files; None draws phantoms. Of `vqa` a table, a folder of
            tables or ORG/NAME on the Hub [the preset's repository].
        images: folders with images, or URL templates with {pmcid}, {file_name} ... for downloading
            missing ones.
        out: the folder to write; default data/<name>.
        allow_missing: build the complete cases if images are missing.
        text_only: build without images.
        eval_yaml: add the Hub's tasks and the copy of the images that they need.
        fields: `vqa` only: the meaning of the columns (`vqa/rows.py`).
        preset: `vqa` only: a known set (`vqa/presets.py`).

    Raises:
        BadInput: anything that the user can fix; nothing is written then.
    """
    family = resolve_name(benchmark, FORMATS, "benchmark")
    is_foreign = source is not None and not (Path(source) / MANIFEST_FILE).is_file() and name not in (None, family)
    if spec(family).custom_preset and is_foreign and not is_phantom_source(Path(str(source))):
        family, preset = ANY_SET, preset or spec(family).custom_preset
    any_source = spec(family).any_source
    if (fields or preset) and not any_source:
        raise BadInput(f"--map, --preset: {family} has a layout of its own. Use them with `build vqa`.")
    if preset is not None:
        preset = resolve_name(preset, PRESETS, "--preset")
        source, name = source or PRESETS[preset].source or None, name or preset
    name = name or family
    if name in FORMATS and (name != family or any_source):
        raise BadInput(f"--as {name}: is the name of a format. Give this set a name of its own with --as.")
    if any_source and source is None:
        raise BadInput(f"build {family}: name the set's table, folder or repository with --source.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", name) or ".." in name or name.endswith((".git", ".ipynb")):
        raise BadInput(
            f"--as {name!r}: a name has letters, digits, '-', '_' and '.', and begins with a letter or digit."
        )

    # Check the target first: reading a large source may take minutes.
    target = Path(out) if out is not None else Path("data") / name
    _check_target(target)
    if source is None:
        with temporary_folder(Path(tempfile.gettempdir()), "medprobe-phantoms-") as folder:
            write_sources(family, folder)
            return build(
                family,
                name=name,
                source=folder,
                images=images,
                out=target,
                allow_missing=allow_missing,
                text_only=text_only,
                eval_yaml=eval_yaml,
            )

    # A table's own folder is not searched for images: it may be a folder of anything.
    folder = Path(source).parent if any_source and Path(source).is_file() else Path(source)
    own_folders = [folder] if Path(source).is_dir() else []
    if not any_source and not own_folders:
        problem = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise BadInput(f"--source {source}: {problem}. Give the folder with the authors' files.")
    reader = load_benchmark_module(family, "reader")
    read = functools.partial(reader.read, folder)
    if any_source:
        spool_folder = next(parent for parent in target.absolute().parents if parent.is_dir())
        read = functools.partial(reader.read, source, fields=fields, preset=preset, spool_folder=spool_folder)
    content = _read_source(reader, read, folder, own_folders, images, target, text_only)
    _check_file_names(content)
    phantom = is_phantom_source(folder)
    if phantom:
        content = content.map_cases(_mark_phantom)

    # Determine the origin before incomplete cases are dropped: part of the official set is still
    # official.
    origin = "phantom" if phantom else _determine_origin(family, name, content)

    # A text-only build needs no images, so none can be missing.
    partial = None if text_only else _drop_incomplete_cases(content, spec(family).get_images, allow_missing)
    if name != family and not phantom:
        content = _complete_custom_set(content, folder, target, keeps_ids=any_source)
    description = Description(name, family, origin, partial, text_only, eval_yaml)

    # Hidden answers go to a folder of their own: publishing the dataset must not include them.
    answers = target.with_name(f"{target.name}-answers")
    if content.hidden_answers:
        _check_target(answers)
    with replace_folder(target) as fresh:
        lines = write_repository(fresh, description, content)
        if content.hidden_answers:
            with replace_folder(answers) as private:
                write_hidden_answers(private, name, content)
            lines = (*lines, f"hidden test answers were written to {answers}: keep that folder private.")
    return BuildReport(target, name, family, origin, partial, lines)


def write_sources(family: str, folder: Path) -> None:
    """Write a small source of drawn phantoms in a benchmark's official layout.

    The bytes are the same every time. Each question has one correct answer by construction, and
    correct letters are balanced. The texts are original.

    Args:
        family: the benchmark.
        folder: where to write; created if needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    load_benchmark_module(family, "phantoms").write(folder)
    write_json(folder / ORIGIN_MARKER, {"origin": "phantom"})


def _complete_custom_set(content: SourceContent, folder: Path, target: Path, *, keeps_ids: bool) -> SourceContent:
    """Check a custom set's splits, add what its makers state, and protect its patients.

    `keeps_ids`: ids are kept unless images name patients, so that everybody who builds a public set
    gets the same fingerprint.
    """
    groups = {split: [image.group for case in cases for image in case.images] for split, cases in content.cases.items()}
    if shared := find_split_overlaps(groups):
        raise BadInput(
            f"{len(shared)} groups (patients, studies or articles) are in more than one split "
            f"({format_overlaps(shared)}). Put all questions of a group into one split."
        )

    # The paper's counts do not apply.
    content.counts = [
        replace(count, paper=None, note="") if count.paper is not None else count
        for count in content.counts
        if count.count or count.paper is None
    ]
    # `medprobe curate` writes a manifest beside its sets.
    document = read_json(folder / MANIFEST_FILE) if (folder / MANIFEST_FILE).is_file() else None
    manifest = document if isinstance(document, dict) else {}
    validated, notes = manifest.get("validated"), manifest.get("notes")
    content.patients = (content.patients or {}) | read_about(folder, manifest)
    content.validated = validated if isinstance(validated, bool) else None
    content.notes += [str(note) for note in notes] if isinstance(notes, list) else []

    # Sources written by `medprobe curate` have keyed ids already; hashing twice would change them.
    names_patients = any(image.group for case in content.all_cases() for image in case.images)
    if manifest.get("ids") != KEYED_IDS and (names_patients or not keeps_ids):
        content = pseudonymize_content(content, load_pseudonyms(target, also=folder))

    withdrawn, total = read_withdrawn_ids(folder, target), len(list(content.all_cases()))
    _filter_cases(
        content,
        lambda case: not any(withdrawn & {image.group, Path(image.image_id).stem} for image in case.images),
    )
    if left_out := total - len(list(content.all_cases())):
        content.notes.append(f"{left_out} of {total} cases were left out: their patients have withdrawn.")
    if total and not any(content.cases.values()):
        raise BadInput("no case is left: all show images of patients who have withdrawn.")
    return content


def _read_source(
    reader: ModuleType,
    read: Callable[[ImageFolders | None], SourceContent],
    folder: Path,
    own_folders: Sequence[Path],
    images: Sequence[str | Path],
    target: Path,
    text_only: bool,
) -> SourceContent:
    """Read the source with the format's reader, downloading missing images if templates
    are given.
    """
    addresses = [str(source) for source in images if is_url_template(str(source))]
    local_folders = [Path(source) for source in images if not is_url_template(str(source))]
    if text_only and images:
        raise BadInput("--text-only: builds no images, so it takes no --images.")

    # Downloads are kept beside the target, since the target itself is replaced by every build.
    cache = target.with_name(f"{target.name}-images")
    folders = [*local_folders, *own_folders, *([cache] if addresses and cache.is_dir() else [])]
    content = read(None if text_only else ImageFolders(folders))
    if addresses and find_missing_images(content):
        if not hasattr(reader, "download_fields"):
            raise BadInput(f"--images {addresses[0]}: images of this format cannot be downloaded; give folders.")
        failed = download_missing(addresses, reader.download_fields(folder), find_missing_images(content), cache)

        # Read again, now with the downloaded images in the index.
        content = read(ImageFolders([*folders, cache]))
        if failed:
            image, why = next(iter(failed.items()))
            content.notes.append(
                f"{len(failed)} images could not be downloaded ({image}: {why}); all are in {cache}/failed.json."
            )

    return content


def _check_file_names(content: SourceContent) -> None:
    """Raise BadInput for ids and image names that are not file names.

    Other tools save images under these names.
    """
    problems = Problems()
    seen: set[str] = set()
    for case in content.all_cases(include_extra=True):
        for image in case.images:
            for label, name in (
                ("case id", case.case_id),
                ("image id", image.image_id),
                ("image name", image.name),
            ):
                # 255 bytes is the limit of common file systems.
                is_file_name = not name or (is_safe_relative_path(name) and name.isprintable() and len(name) < 256)
                if name not in seen and not is_file_name:
                    location = image.location or f"case {clip(case.case_id)}"
                    problems.add(location, None, f"the {label} {clip(name)} is not a valid file name")
                seen.add(name)

    problems.check(
        "Fix the ids in the source: no '..', no absolute path, no control characters, at most 255 characters."
    )


def _mark_phantom(case: Case) -> Case:
    """Set licence and source of a case's images to those of drawn phantoms."""
    images = (replace(image, license="CC0-1.0", source="drawn by medprobe") for image in case.images)
    return replace(case, images=tuple(images))


def find_missing_images(content: SourceContent) -> dict[str, str]:
    """Return image id -> name of all images that were not found, in the order of the cases."""
    images = (image for case in content.all_cases(include_extra=True) for image in case.images)
    return {image.image_id: image.name or image.image_id for image in images if image.read is None}


def _drop_incomplete_cases(content: SourceContent, get_images: str, allow_missing: bool) -> str | None:
    """Drop the cases with missing images and return a note about it; None if nothing is missing.

    Raises BadInput that lists all missing images, unless they are allowed.
    """
    missing = find_missing_images(content)
    if not missing:
        return None
    cases = list(content.all_cases())

    # A case is scored as a whole, so one missing image makes all of it useless.
    complete = sum(not _lacks_image(case) for case in cases)
    total = len({image.image_id for case in cases for image in case.images})
    if not allow_missing:
        raise BadInput(
            f"{len(missing)} of {total} images are missing, so {len(cases) - complete} of {len(cases)} cases "
            f"cannot be built. {''.join(note + ' ' for note in content.notes if 'downloaded' in note)}{get_images} Or "
            f"build only the complete cases ({complete} of {len(cases)}) with --allow-missing. Missing: "
            f"{', '.join(missing.values())}"
        )

    if not complete:
        raise BadInput(f"all {total} images are missing, so no case can be built. {get_images}")
    _filter_cases(content, lambda case: not _lacks_image(case))
    return f"{complete} of {len(cases)} cases: {len(missing)} of {total} images were missing"


def _lacks_image(case: Case) -> bool:
    return any(image.read is None for image in case.images)


def _filter_cases(content: SourceContent, is_kept: Callable[[Case], bool]) -> None:
    """Keep only some cases and their hidden answers.

    An extra config is dropped if one of its splits becomes empty: it would lack train or test.
    """

    def filter_splits(splits: dict[str, list[Case]]) -> dict[str, list[Case]]:
        remaining = {split: [case for case in cases if is_kept(case)] for split, cases in splits.items()}
        return {split: cases for split, cases in remaining.items() if cases}

    content.cases = filter_splits(content.cases)
    content.extra_configs = {
        config: remaining
        for config, splits in content.extra_configs.items()
        if len(remaining := filter_splits(splits)) == len(splits)
    }
    ids = {question.question_id for case in content.all_cases() for question in case.questions}
    content.hidden_answers = {key: answer for key, answer in content.hidden_answers.items() if key in ids}


def _determine_origin(family: str, name: str, content: SourceContent) -> str:
    """Classify a source that is not drawn: official (the complete released set) or custom.

    If the released fingerprint is not known, a set counts as official if its counts equal the
    paper's.
    """
    if name != family:
        return "custom"

    # Fingerprints decide if any is known; otherwise counts are the best evidence.
    facts = spec(family)
    if facts.released.keys() & content.cases.keys():
        is_whole = all(
            is_released_set(family, split, fingerprint_cases(cases)) for split, cases in content.cases.items()
        )
    else:
        sizes = content.sizes()
        images = {image.image_id for case in content.all_cases() for image in case.images}
        has_all_images = facts.paper_images in (None, len(images))
        is_whole = bool(sizes) and sizes.items() <= facts.paper_questions.items() and has_all_images
    return "official" if is_whole else "custom"


def _check_target(target: Path) -> None:
    """Raise BadInput if writing to `target` would overwrite anything but a dataset by medprobe."""
    if target.exists() and not target.is_dir():
        raise BadInput(f"--out {target}: is a file. Name a folder that does not exist yet.")
    if target.is_dir() and not (target / MANIFEST_FILE).is_file():
        # An empty folder may be used; one with other files must not be overwritten.
        entry_name = next(iter(sorted(path.name for path in target.iterdir())), None)
        if entry_name is not None:
            raise BadInput(
                f"--out {target}: contains {entry_name!r} and is not a dataset. Name another folder, or empty this one."
            )


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Write a folder in place of an existing one.

    Args:
        target: the folder to replace or create.

    Yields:
        A new folder beside it, which replaces `target` if the block succeeds and is removed
            otherwise.

    Raises:
        BadInput: the parent folder is not writable.
    """
    # Two renames: the old dataset is moved aside, then the new one takes its place.
    old = target.with_name(f".{target.name}.replaced")
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = stack.enter_context(temporary_folder(target.parent, f".{target.name}."))
        except OSError as error:
            raise BadInput(f"--out {target}: cannot be written ({error.strerror}). Name another folder.") from None
        if old.is_dir() and not target.exists():
            old.rename(target)  # recover from a kill between the two renames below
        yield fresh
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
