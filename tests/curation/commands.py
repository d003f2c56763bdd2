"""Run `medprobe curate` in this process. See also: all of `medprobe` (`tests/commands.py`)."""

import shlex

from typer.testing import CliRunner

from curation.command_line import app
from curation.review.review import CHECK_FIELDS, SCORE_FIELDS, ReviewLog


def curate(line: object, *words: object) -> str:
    """Run `medprobe curate LINE WORDS` and return its output.

    Exceptions of the command (BadInput) are raised; any exit code but 0 fails the test.
    """
    result = CliRunner().invoke(app, [*shlex.split(str(line)), *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def score_pair(log: ReviewLog, reviewer: str, pair: str, score_1: int, score_2: int) -> None:
    """Review a pair: two scores, and yes for every check."""
    for name, value in zip(SCORE_FIELDS, (score_1, score_2), strict=True):
        log.change(reviewer, pair, name, value, None)
    for check in CHECK_FIELDS:
        log.change(reviewer, pair, check, "yes", None)
