"""The Space's variables, set wrongly: one line in its log instead of a traceback."""

import pytest

from leaderboard_space import app


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MEDPROBE_SCORINGS_PER_DAY", "many", "MEDPROBE_SCORINGS_PER_DAY: 'many'"),
        ("MEDPROBE_SCORINGS_PER_DAY", "0", "MEDPROBE_SCORINGS_PER_DAY: '0'"),
        ("GRADIO_SERVER_PORT", "-1", "GRADIO_SERVER_PORT: '-1'"),
        ("MEDPROBE_HIDDEN", "only/one", "MEDPROBE_HIDDEN: give three"),
        ("MEDPROBE_RESULTS", "no such place/at all/here", "error: "),
    ],
)
def test_a_wrong_variable_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(app, "_check_port", lambda host, port: None)
    if variable != "MEDPROBE_RESULTS":
        monkeypatch.setattr(app, "serve", lambda *given: pytest.fail("served"))
    with pytest.raises(SystemExit) as ended:
        app.main()
    line = str(ended.value)
    assert line.startswith(said) and "\n" not in line


def test_what_is_not_set_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    for name in (
        "MEDPROBE_RESULTS",
        "MEDPROBE_DATA",
        "MEDPROBE_HIDDEN",
        "MEDPROBE_SCORINGS_PER_DAY",
        "GRADIO_SERVER_PORT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(app, "serve", lambda *given: served.append(given))
    app.main()
    assert served[0][:2] == (None, 7860) and served[0][3:] == ([], None)


def test_idle_sessions_are_forgotten():
    """Each costs about 80 kB; Gradio alone would keep 10,000."""
    import gradio as gr
    from gradio.state_holder import StateHolder

    from leaderboard_space.app import SESSIONS, launch_options

    with gr.Blocks() as blocks:
        gr.State(0)
    blocks.state_session_capacity = launch_options()["state_session_capacity"]
    holder = StateHolder()
    holder.set_blocks(blocks)
    for number in range(SESSIONS + 50):
        holder[f"session {number}"]
    assert (
        SESSIONS <= 1_000 and len(holder.session_data) == SESSIONS and f"session {SESSIONS + 49}" in holder.session_data
    )
