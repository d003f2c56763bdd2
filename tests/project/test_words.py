"""Check the words of docstrings, comments and messages: a module's docstring says what it does, and
certain vague pronouns do not occur.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dataset_builders", "eval_harness", "leaderboard_space", "curation", "medprobe", "benchmarks")
SOURCE_FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


def test_module_docstrings_are_imperatives_or_noun_phrases():
    docs = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in SOURCE_FILES}
    asking = [
        str(path)
        for path, text in docs.items()
        if re.match(
            r"(What|Where|Which|How|Who|Whether|Does|Reads|Makes|Writes|Goes|Takes|Puts|Has|Asks|Calls|Kills)\b", text
        )
    ]
    assert len(docs) > 200
    assert asking == []


def test_no_sentence_speaks_of_nobody_or_whoever():
    matches = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (*SOURCE_FILES, *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(nobody|whoever|who asks)\b", line, re.IGNORECASE)
    ]
    assert matches == []
