"""Run `medprobe curate` in this process. See also: all of `medprobe` (`tests/commands.py`)."""

import shlex

from typer.testing import CliRunner

from curation.command_line import app


def curate(line: object, *words: object) -> str:
    """Run `medprobe curate LINE WORDS` and return its output.

    Exceptions of the command (BadInput) are raised; any exit code but 0 fails the test.
    """
    result = CliRunner().invoke(app, [*shlex.split(str(line)), *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output
