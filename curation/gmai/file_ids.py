"""Which file an id of the work folder stands for. `private/` names files by keyed hashes, since a file may be called like its patient;
`dataset.names.csv`, beside the key and readable by its owner alone, says which file each is.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from curation.images.file_names import file_names, list_beside, write_list
from dataset_builders.contents.pseudonyms import pseudonyms_of


class FileIds:
    """Ids of files, collected while they are read. As a context manager it writes the list at the end, also of a run that fails.

    `before` is what the list held: id -> file.
    """

    def __init__(self, repository: Path) -> None:
        self._pseudonyms = pseudonyms_of(repository)
        self._path = list_beside(repository)
        self.before = file_names(repository)
        self._listed: dict[str, str] = {}

    def of(self, dataset: str, file: str) -> str:
        """The id of a file of a dataset."""
        return self._pseudonyms.of("f", f"{dataset}\0{file}")

    def add(self, dataset: str, file: str) -> str:
        """The id of a file, which goes on the list."""
        made = self.of(dataset, file)
        self._listed[made] = file
        return made

    def knows(self, ids: list[str]) -> bool:
        """Whether the list says which files these are."""
        return all(each in self.before or each in self._listed for each in ids)

    def keep(self, ids: list[str]) -> None:
        """Leave on the list what it said before of these ids."""
        self._listed |= {each: self.before[each] for each in ids if each in self.before}

    def drop(self, ids: set[str]) -> None:
        """Take ids off the list that is on the disk."""
        write_list(self._path, sorted((each, file) for each, file in self.before.items() if each not in ids))

    def __enter__(self) -> FileIds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A run that was stopped has not come to every file: what is known of the others stays.
        listed = self._listed if error is None else self.before | self._listed
        write_list(self._path, sorted(listed.items(), key=lambda each: each[1]))
