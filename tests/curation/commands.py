"""`medprobe curate` in this process. See also: all of `medprobe` (`tests/commands.py`)."""

from typer.testing import CliRunner

from curation.command_line import app


def curate(*words: object) -> str:
    """Run a command; returns what it printed. Raises what it raises (BadInput), fails where it ends with another code than 0."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output
