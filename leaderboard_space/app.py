"""The board as a Gradio app: one tab per benchmark and About. Wiring only; what is shown comes from `service.py` and `views/`.

`serve(store)` runs it on this machine, `build_app(store)` gives the Gradio Blocks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported: the board calls nobody

import gradio as gr

from dataset_builders.errors import BadInput
from dataset_builders.schema import FORMATS
from leaderboard_space.api import tools
from leaderboard_space.published_results import board_results
from leaderboard_space.sections import Board
from leaderboard_space.service import Service
from leaderboard_space.views import about, cases, compare
from leaderboard_space.views.choices import NAMES

ASSETS = Path(__file__).parent / "assets"
FONTS = ["system-ui", "sans-serif"]


def build_app(store: str | Path | None) -> gr.Blocks:
    """The board over a results store (a folder that contains `results/`, or a dataset repository ORG/NAME on the Hub); None shows
    published results alone.

    Raises BadInput when `store` is not a results store. New results in it appear without a restart.
    """
    board = Board(store, board_results())
    board.watch()
    service = Service(board)
    style = (ASSETS / "board.css").read_text(encoding="utf-8")
    script = (ASSETS / "board.js").read_text(encoding="utf-8")
    with gr.Blocks(
        title="medprobe: can you trust your AI radiologist?", fill_width=True, analytics_enabled=False
    ) as app:
        gr.HTML(
            f"<style>{style}</style><header><h1>medprobe <span>Can you trust your AI radiologist?</span></h1></header>",
            elem_id="mp-header",
            apply_default_css=False,
            js_on_load=None,
        )
        with gr.Tabs(elem_id="mp-tabs") as tabs:
            for number, format in enumerate(FORMATS):
                with gr.Tab(NAMES[format], id=format, elem_id=f"tab-{format}"):
                    _benchmark(format, service, script, first=number == 0)
            for name, views in (("Compare", compare), ("Cases", cases)):
                with gr.Tab(name, id=name.lower(), elem_id=f"tab-{name.lower()}"):
                    _page(name.lower(), views.page, board)
            with gr.Tab("About", id="about", elem_id="tab-about"):
                gr.HTML(about.page(), apply_default_css=False, js_on_load=None)
        known = {*FORMATS, "compare", "cases", "about"}

        def open_tab(request: gr.Request) -> Any:
            """A link names its tab as `b`; a narrow screen keeps tabs in a menu, so the page itself cannot click it."""
            named = request.query_params.get("b")
            return gr.Tabs(selected=named) if named in known else gr.skip()

        app.load(open_tab, outputs=tabs, queue=False, show_progress="hidden", api_visibility="private")
        for tool in tools(board, service):
            gr.api(_spoken(tool), api_name=tool.__name__, queue=False)
    return app


def _spoken(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with what is wrong with a call said to the caller instead of an internal error."""

    @wraps(tool)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return tool(*given, **named)
        except BadInput as error:
            raise gr.Error(str(error), print_exception=False) from None

    return call


def serve(store: str | Path | None, port: int = 7860, host: str = "127.0.0.1") -> None:
    """Serve the board and print its address; returns when interrupted.

    Raises BadInput when `store` is no results store, or the port is taken.
    """
    _check_port(host, port)
    app = build_app(store)
    app.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        **launch_options(),
    )
    print(f"The board is on http://{host}:{port} (Ctrl-C ends it).", flush=True)
    app.block_thread()


def launch_options() -> dict[str, Any]:
    """What `launch` needs for the board's look, and for calling nobody outside."""
    theme = gr.themes.Base(font=FONTS, font_mono=["ui-monospace", "monospace"], primary_hue="teal", neutral_hue="slate")
    return {"theme": theme, "share": False, "footer_links": ["api"], "run_history": False, "ssr_mode": False}


def _benchmark(format: str, service: Service, script: str, first: bool) -> None:
    """One benchmark's tab: a single component that draws itself and asks the server for what changes."""

    def view(request: dict[str, Any]) -> dict[str, Any]:
        return _answer(service.view, request)

    def tree(request: dict[str, Any]) -> dict[str, Any]:
        return _answer(service.tree, request)

    def breakdown(request: dict[str, Any]) -> dict[str, Any]:
        return _answer(service.breakdown, request)

    def detail(request: dict[str, Any]) -> dict[str, Any]:
        return _answer(service.detail, request)

    def export(request: dict[str, Any]) -> dict[str, Any]:
        return _answer(service.export, request)

    def cite(request: dict[str, Any]) -> dict[str, Any]:
        return _answer(service.cite, request)

    def panel() -> str:
        shown = service.view({"format": format})["html"] if first else '<p class="sub">Reading the results.</p>'
        return (
            f'<div class="mp" data-format="{format}"><aside class="side" aria-label="Selection"></aside>'
            f'<div class="panel">{shown}</div><section class="breakdown" aria-label="Breakdown"></section>'
            '<p class="heard" role="status"></p></div>'
        )

    gr.HTML(
        panel(),
        elem_id=f"mp-{format}",
        apply_default_css=False,
        js_on_load=script,
        server_functions=[view, tree, breakdown, detail, export, cite],
    )


def _page(name: str, draw: Callable[[Board, Any], str], board: Board) -> None:
    """A page that is a form and what follows from it; the server draws it whole for every choice."""

    def whole_page(request: dict[str, Any]) -> dict[str, Any]:  # gr.HTML has an attribute `page` of its own
        return _answer(lambda asked: draw(board, asked), request)

    gr.HTML(
        f'<div class="mp-page" data-page="{name}"><h2 class="finding">Reading the results.</h2></div>',
        elem_id=f"mp-{name}",
        apply_default_css=False,
        js_on_load=(ASSETS / "page.js").read_text(encoding="utf-8"),
        server_functions=[whole_page],
    )


def _answer(function: Callable[[Any], Any], request: Any) -> dict[str, Any]:
    """The answer to a request, or one line about what is wrong with it; nothing a browser sends takes the board down."""
    try:
        return {"ok": function(request if isinstance(request, dict) else {})}
    except BadInput as error:
        return {"error": str(error)}


def main() -> None:
    """Run as a Space: the store is named by MEDPROBE_RESULTS, the address by Gradio's own variables."""
    host = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    serve(os.environ.get("MEDPROBE_RESULTS") or None, int(os.environ.get("GRADIO_SERVER_PORT", "7860")), host)


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"--port {port}: cannot be used on {host} ({error}). Give another, e.g. --port {_free(host)}."
            ) from None


def _free(host: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
