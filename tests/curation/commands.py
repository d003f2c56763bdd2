"""`medprobe curate` in this process. See also: all of `medprobe` (`tests/commands.py`)."""

import shlex

from typer.testing import CliRunner

from curation.command_line import app


def curate(line: object, *words: object) -> str:
    """Run `medprobe curate LINE WORDS`; returns what it printed. Raises what it raises (BadInput), fails where it ends with another code
    than 0."""
    done = CliRunner().invoke(app, [*shlex.split(str(line)), *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output
