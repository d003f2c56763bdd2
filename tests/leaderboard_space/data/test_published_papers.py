"""Check every number in `published/` against the papers' text: whole printed lines are compared, so
that no cell, column or row can be lost or moved.
"""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from dataset_builders.benchmarks.halt_medvqa.reader import read as read_halt
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.published_results import PUBLISHED_FOLDER, printed_cells, read_table

pytestmark = pytest.mark.sources

ICLR, ARXIV = "mediconfusion_iclr2025.txt", "mediconfusion_arxiv.txt"
PLACES: dict[str, list[tuple[str, str, str]]] = {
    "mediconfusion_table1": [(ICLR, "Table 1:", "Based on these guidelines"), (ARXIV, "Table 1:", "Gemini models are")],
    "mediconfusion_table2": [(ICLR, "\tCerebral", "Table 2:"), (ARXIV, "Table 2:", "4. Discussion")],
    "mediconfusion_table4": [(ICLR, "Table 4:", "### C"), (ARXIV, "Table 5:", "D. Fine")],
    "mediconfusion_table6": [(ARXIV, "Table 6:", "^We believe")],
    "mediconfusion_table7": [(ICLR, "Table 7 compares", "Table 7:")],
    "mediconfusion_table8": [(ICLR, "Table 8:", "The best-of-N"), (ARXIV, "Table 8:", "H.1.")],
    "mediconfusion_table9": [(ICLR, "Self-consistency", "Table 9:"), (ARXIV, "Table 9:", "Table 10:")],
    "mediconfusion_table10": [(ICLR, "Table 9:", "Table 10:"), (ARXIV, "Table 10:", "H.2.3")],
    "probmed_table3": [("probmed.txt", "Table 3:", "Table 4:")],
    "probmed_table4": [("probmed.txt", "Table 4:", "4.1.2")],
    "probmed_table5": [("probmed.txt", "Table 5:", "the existence of abnormalities")],
    "probmed_table6": [("probmed.txt", "Table 6:", "and positions.")],
    **{f"probmed_table{k}": [("probmed.txt", f"Table {k}:", "^A.|^B ")] for k in range(7, 19)},
    "gmai_mmbench_table10": [("gmai_mmbench.txt", "E.1 Quantitative", "CS \\| D \\| E")],
    "gmai_mmbench_table11": [("gmai_mmbench.txt", "CS \\| D \\| E", "Model name \\| Size")],
    "gmai_mmbench_table12": [("gmai_mmbench.txt", "Model name \\| Size", "E.2 Case")],
    "halt_medvqa_table1": [("halt_medvqa.txt", "Table 1:", "5 Conclusion")],
    "halt_medvqa_table7": [("halt_medvqa.txt", "Table 7:", "$^")],
}
"""Table -> (paper's text, pattern of the line before the table, pattern of the line after it); if
there are several places, all must agree.
"""


def plain(line: str) -> str:
    """Return a printed line without markup, citations and separators; two labels that the ICLR text
    garbles are corrected.
    """
    line = re.sub(r"</?\w+>|\*\*|\\ul|\$|\\cite\w*", "", line).replace("\\pm", " ± ")
    line = re.sub(r"\[\d+\]", "", line)
    line = " ".join(re.sub(r"[|\t]", " ", line).split())
    return re.sub(r"^01 ", "o1 ", re.sub(r"^GPT-40 ", "GPT-4o ", line))


def printed_lines(text: str, start: str, end: str) -> list[str]:
    """Return the lines of a region that end in two numbers (or empty cells), without markup."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if re.match(start, line)]
    start_index = places[-1] if start.startswith("CS") else places[0]
    end_index = next((n for n in range(start_index + 1, len(lines)) if re.match(end, lines[n])), len(lines))
    number = r"(?:\(?[-+]?\d+(?:\.\d+)?\)?|-|/)"
    texts = (plain(line) for line in lines[start_index + 1 : end_index])
    return [line for line in texts if re.search(rf"(?:^| ){number}(?: ±)? {number}$", line)]


def our_lines(table: str) -> list[str]:
    """Return the rows of the CSV as the paper prints them: a label that spans several lines is on
    the first of them only.
    """
    with (PUBLISHED_FOLDER / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    lines, previous_label = [], ""
    for row in rows:
        cells = row[1:] if table.startswith("probmed") and row[0] == previous_label else row
        previous_label = row[0]
        lines.append(plain(" ".join(cell for cell in cells if cell)))
    return lines


def test_every_table_has_a_place() -> None:
    assert sorted(PLACES) == sorted(row["table"] for row in read_table("tables"))


@pytest.mark.parametrize("table", sorted(PLACES))
def test_lines_are_the_papers(table: str, papers: Path) -> None:
    csv_lines = our_lines(table)
    for name, start, end in PLACES[table]:
        assert printed_lines((papers / name).read_text(encoding="utf-8"), start, end) == csv_lines


HEADINGS = {
    "mediconfusion_table2": " / (?:Set|Indiv.)",
    "mediconfusion_table4": "",
    "probmed_table5": "Overall",
    **{f"probmed_table{k}": "" for k in range(7, 19)},
    "gmai_mmbench_table10": r"Overall\(\w+\)",
    "gmai_mmbench_table11": r"Overall\(\w+\)",
    "gmai_mmbench_table12": "",
}
"""Tables whose column headings are one printed line -> what the CSV's headings contain in
addition.
"""


@pytest.mark.parametrize("table", sorted(HEADINGS))
def test_columns_stand_in_the_papers_order(table: str, papers: Path) -> None:
    with (PUBLISHED_FOLDER / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        head = [re.sub(HEADINGS[table], "", name) for name in next(csv.reader(file))[1:]]
    line = plain(" ".join(dict.fromkeys(name for name in head if name)))
    text = (papers / PLACES[table][0][0]).read_text(encoding="utf-8")
    assert any(plain(printed).endswith(line) for printed in text.split("\n")), line


def test_interleaved_table_of_the_iclr_text(papers: Path) -> None:
    """The ICLR text prints both models of Table 6 in one line, cell by cell."""
    text = plain((papers / ICLR).read_text(encoding="utf-8"))
    odd, even = (line.split() for line in our_lines("mediconfusion_table6"))
    pairs = zip(odd[1:], even[1:], strict=True)
    assert " ".join(f"{a} {b}" for a, b in pairs) in text


def test_pairs_per_category(sources: Path) -> None:
    """n = labels on images, n_cases = pairs with the label on either image."""
    pairs = json.loads((sources / "mediconfusion/dataset.json").read_text(encoding="utf-8")).values()
    labels = Counter(label for pair in pairs for side in ("category_1", "category_2") for label in pair[side])
    cases = Counter(label for pair in pairs for label in {*pair["category_1"], *pair["category_2"]})
    stated = {
        (cell.about["facet_value"], int(cell.about["n"]), int(cell.about["n_cases"]))
        for cell in printed_cells("mediconfusion_table2")
    }
    assert stated == {(label, n, cases[label]) for label, n in labels.items()}


def test_chance_of_halt(sources: Path) -> None:
    questions = [case.questions[0] for case in read_halt(sources / "halt_medvqa", None).cases["test"]]
    chance = board_spec("halt-medvqa").chance
    for scenario in ("fake", "none", "swap"):
        shares = [1 / len(q.options) for q in questions if q.extra["scenario"] == scenario]
        assert chance[scenario] == pytest.approx(100 * sum(shares) / len(shares), abs=1e-5)
    assert chance["average"] == pytest.approx((chance["fake"] + chance["none"] + chance["swap"]) / 3, abs=1e-5)
