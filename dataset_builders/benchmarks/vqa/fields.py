"""Say which columns of a source mean what (`--map`).

See also: known sets (`presets.py`), reading the rows (`rows.py`), options and answers (`keys.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from dataset_builders.benchmark_names import resolve_name
from dataset_builders.benchmarks import DECLARED_COLUMNS, FACETS_BY_BENCHMARK
from dataset_builders.errors import BadInput

Names = tuple[str, ...]
COMMON_FACETS = ("task", "modality", "department", "granularity", "keyword", "category")
"""Facets that other benchmarks have, too; labels of any other name are the set's own facets."""
_SCORE_COLUMNS = (
    *(
        "case",
        "chance",
        "choice",
        "cluster",
        "correct",
        "count",
        "denominator",
        "failed",
        "irrelevant",
        "key",
        "metric",
    ),
    *("missing", "numerator", "refused", "response", "responses", "rule", "sample", "status", "truncated", "unit"),
)
RESERVED_NAMES = frozenset((*_SCORE_COLUMNS, *DECLARED_COLUMNS)).difference(
    COMMON_FACETS, *FACETS_BY_BENCHMARK.values()
)
"""Columns with another meaning, in questions, scores or readings."""


@dataclass(frozen=True)
class Fields:
    """Columns by meaning. Each field is a list of names, separated by `;` in `--map`.

    `question`: columns whose texts are joined by line breaks. `options`: a column for each option,
    or one column with all; a table without these has columns `A`, `B` and so on. `answer`: a
    column, `COLUMN:FORM` with a form of `keys.ANSWER_FORMS` if the answers can be read in several.
    `image`: columns shown in this order. `facets`: labels, a column or `NAME=COLUMN`. `where`:
    `COLUMN=VALUE|VALUE` keeps the rows that have one of the values (`split` and `config` are
    columns of every source). `files`: glob patterns of a folder's tables. `config`: configs of a
    Hub repository.
    """

    question: Names = ("question",)
    options: Names = ("options",)
    answer: Names = ("answer",)
    image: Names = ("image", "image_path", "file_name")
    id: Names = ()
    case: Names = ()
    group: Names = ()
    license: Names = ()
    split: Names = ("split",)
    facets: Names = COMMON_FACETS
    where: Names = ()
    files: Names = ("*", "*/metadata.*")
    config: Names = ()

    @property
    def allowed(self) -> dict[str, list[str]]:
        """Column -> values that a row must have one of."""
        return {name: values.split("|") for name, _, values in (item.partition("=") for item in self.where)}

    @property
    def labels(self) -> dict[str, str]:
        """Facet -> column of its labels."""
        pairs = [item.partition("=") for item in self.facets]
        return {facet_name(name): (column or name).strip() for name, _, column in pairs}


def facet_name(name: str) -> str:
    """Turn a column's name into a facet's: lower case, words joined by underscores."""
    return "_".join("".join(sign if sign.isalnum() else " " for sign in name.lower()).split())


def parse_fields(text: str, base: Fields = Fields()) -> Fields:
    """Parse the text of `--map`.

    Args:
        text: `question=Q,options=A;B;C,answer=key,image=file,facets=organ;task=kind`.
        base: fields that the text does not name.

    Raises:
        BadInput: a field is unknown or empty.
    """
    changes: dict[str, Names] = {}
    for part in filter(None, text.split(",")):
        name, _, columns = (word.strip() for word in part.partition("="))
        names = tuple(column.strip() for column in columns.split(";") if column.strip())
        if not names:
            raise BadInput(f"--map {part[:80]!r}: write FIELD=COLUMN, e.g. answer=key; several columns with ';'.")
        changes[resolve_name(name, [field.name for field in fields(Fields)], "--map: the field")] = names
    fields_of_set = replace(base, **changes)
    for name in fields_of_set.labels:
        if not name or name in RESERVED_NAMES:
            raise BadInput(
                f"--map facets={name}: the name has another meaning here. Give it one of its own: my_name={name}."
            )
    return fields_of_set
