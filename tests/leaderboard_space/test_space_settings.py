"""Test invalid variables of the Space, and an occupied port: one line instead of a traceback."""

import socket

import pytest

from dataset_builders.errors import BadInput
from leaderboard_space import app


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(BadInput, match="cannot listen on"):
        app.serve(None, port=listener.getsockname()[1])


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MEDPROBE_SCORINGS_PER_DAY", "many", "MEDPROBE_SCORINGS_PER_DAY: 'many'"),
        ("MEDPROBE_SCORINGS_PER_DAY", "0", "MEDPROBE_SCORINGS_PER_DAY: '0'"),
        ("GRADIO_SERVER_PORT", "-1", "GRADIO_SERVER_PORT: '-1'"),
        ("MEDPROBE_HIDDEN", "only/one", "MEDPROBE_HIDDEN: give three"),
        ("MEDPROBE_RESULTS", "no such place/at all/here", "error: "),
    ],
)
def test_a_wrong_variable_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    monkeypatch.setenv(variable, value)
    if variable != "MEDPROBE_RESULTS":
        monkeypatch.setattr(app, "serve", lambda *args: pytest.fail("served"))
    with pytest.raises(SystemExit) as ended:
        app.main()
    line = str(ended.value)
    assert line.startswith(message) and "\n" not in line
