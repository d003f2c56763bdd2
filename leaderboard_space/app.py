"""The board as a Gradio app: overview, one tab per benchmark, topics, Compare, Cases, Submit,
About.

Wiring, and the frame of the pages (style sheets, scripts, tabs); content comes from `service.py`
and `views/`. `serve(store)` runs the board on this machine; `build_app(store)` returns the Gradio
Blocks and the middleware that serves its pages (`serving.py`).
"""

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial, wraps
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from threadpoolctl import threadpool_limits

from dataset_builders.benchmarks import FORMATS
from dataset_builders.errors import BadInput
from eval_harness.records.limits import MAX_FILE_BYTES
from eval_harness.store.hidden_test import HiddenTest
from leaderboard_space.benchmarks import BENCHMARK_LABELS
from leaderboard_space.data.board import Board, TrustedData
from leaderboard_space.data.published_results import board_results
from leaderboard_space.html import text
from leaderboard_space.service import Service, tools
from leaderboard_space.serving import SPACE_FRAME_ANCESTORS, BodyLimit, Endpoint, JsonHandler, access_lifespan, on_space
from leaderboard_space.submitting import SubmitTab, draw_form
from leaderboard_space.views import cases, compare, model, overview, search, topic

ASSETS = Path(__file__).parent / "assets"
STYLE_SHEETS = ("board.css", "pages.css", "plots.css", "narrow.css")
SCRIPTS = ("router.js", "table.js", "page.js", "plots.js", "selection.js", "board.js", "search.js")
TITLE = "medprobe: can you trust your AI radiologist?"
READING = '<h2 class="finding">Reading the results.</h2>'
SEARCH = (
    '<div class="mp-search"><input type="search" aria-label="Search departments, modalities, findings, categories, scores and models" '
    'placeholder="Department, modality, finding or model" autocomplete="off" spellcheck="false"><kbd aria-hidden="true">/</kbd>'
    '<ul aria-label="Hits" hidden></ul><p class="hear" role="status"></p></div>'
)
"""The search of the first screen (`assets/search.js`)."""
START_SCRIPT = (
    "for (const one of element.querySelectorAll('.mp')) medprobeBenchmark(one.parentElement);"
    "for (const one of element.querySelectorAll('.mp-page')) medprobePage(one.parentElement, () => {});"
    "medprobeSearch(element);"
)
"""Starts the pages once they are drawn."""


def header() -> str:
    """Draw the style sheets, the name of the board, and the tabs."""
    name = "medprobe <span>Can you trust your AI radiologist?</span>"
    skip = '<a class="skip" href="#mp-pages">Skip to the results</a>'
    return f"<style>{_read(STYLE_SHEETS)}</style>{skip}<header><h1>{name}</h1></header>{_navigation()}"


def pages(initial_html: Mapping[str, str]) -> str:
    """Draw every page except Submit, which is a Gradio form.

    Benchmark pages draw themselves and ask the server for what changes (`assets/board.js`); the
    others are drawn by the server.

    Args:
        initial_html: Page -> HTML that it shows at first.
    """
    names = ("overview", "compare", "cases", "topic", "model", "about")
    html_by_page = {
        family: f'<div class="mp" data-format="{family}"><aside class="side" aria-label="Selection"></aside>'
        '<div class="panel"><p class="sub">Reading the results.</p></div><section class="breakdown" aria-label="Breakdown">'
        '</section><p class="heard" role="status"></p></div>'
        for family in FORMATS
    }
    html_by_page |= {name: page(name, initial_html.get(name, READING)) for name in names}
    html_by_page["overview"] = SEARCH + html_by_page["overview"]
    return "".join(
        f'<div id="page-{name}"><div id="mp-{name}">{content}</div></div>' for name, content in html_by_page.items()
    )


def about() -> str:
    """Return the page About."""
    return _read(("about.html",))


def page(name: str, initial_html: str = READING) -> str:
    """Draw a page that the server fills (`assets/page.js`).

    `initial_html` is what it shows at first.
    """
    return f'<div class="mp-page" data-page="{name}">{initial_html}</div>'


def _read(names: tuple[str, ...]) -> str:
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)


def _navigation() -> str:
    """Draw the tabs as links, since every page has an address (`assets/router.js`)."""
    tabs = [("overview", "Overview", "#/overview")]
    tabs += [(family, BENCHMARK_LABELS[family], f"#/b/{family}") for family in FORMATS]
    tabs += [(name.lower(), name, f"#/{name.lower()}") for name in ("Compare", "Cases", "Submit", "About")]
    links = "".join(
        f'<a href="{address}" data-home="{address}" data-page="{name}">{text(label)}</a>'
        for name, label, address in tabs
    )
    return f'<nav id="mp-nav" aria-label="Pages"><div>{links}</div></nav>'


LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_SESSIONS = 500
"""Maximum number of sessions; only Submit starts one. Each costs about 80 kB (a copy of every
component), and Gradio would keep 10,000. A visitor who returns after 500 others finds an empty
form."""
UPLOAD_LIFETIME_S = 3600
"""Seconds before uploaded files and submission bundles are deleted."""


def build_app(
    store: str | Path | None, data: Sequence[str] = (), may_write: bool = False, hidden: HiddenTest | None = None
) -> tuple[gr.Blocks, Middleware, Callable[[], None]]:
    """Build the board over a results store. New results appear without a restart.

    Args:
        store: A folder that contains `results/`, or a dataset repository ORG/NAME on the Hub; None
            for published results only.
        data: Trusted datasets (folders or Hub repositories) that accept answers, besides the
            question sets in the store. Results on earlier versions of them are retired.
        may_write: True if visitors act as the local user and may add to the store.
        hidden: A test with hidden answers.

    Returns:
        The app; the middleware that serves its pages; and a function to call once the app is
        served, which reads the answers and watches the store.

    Raises:
        BadInput: If `store` is not a results store.
    """
    trusted = TrustedData(data)
    trusted.refresh()
    board = Board(store, board_results(), trusted)
    submitting = SubmitTab(board, store, may_write, hidden)
    service = Service(board)
    functions: dict[str, JsonHandler] = {
        "overview/search": partial(search.answer, board),
        "about/page": lambda request: about(),
        "submit/page": submitting.page,
        "submit/file": submitting.file,
    }
    for family in FORMATS:
        for ask in (service.view, service.tree, service.breakdown, service.detail, service.export, service.cite):
            functions[f"{family}/{ask.__name__}"] = ask
    views = {"overview": overview, "topic": topic, "model": model, "compare": compare, "cases": cases}
    for name, view in views.items():
        functions |= {f"{name}/page": partial(view.page, board), f"{name}/file": partial(view.file, board)}
    with gr.Blocks(
        title=TITLE,
        fill_width=True,
        analytics_enabled=False,
        # (seconds between checks, age in seconds at which files are deleted)
        delete_cache=(UPLOAD_LIFETIME_S // 6, UPLOAD_LIFETIME_S),
    ) as app:
        _html(header(), "mp-header", "medprobe.start();")
        with gr.Column(elem_id="mp-pages"):
            _html(pages({"overview": overview.page(board, {}), "about": about()}), script=START_SCRIPT)
            with gr.Column(elem_id="page-submit"):
                drawn_when_open = "medprobePage(element, () => { trigger('select') });"
                opened = _html(page("submit"), "mp-submit-page", drawn_when_open)
                offered = gr.State(submitting.choices())
                form, target = draw_form(submitting)

        # Redraw the form only if its choices changed: redrawing discards a file chosen meanwhile.
        def fill(offered: Any) -> tuple[Any, ...]:
            choices = submitting.choices()
            if choices == offered:
                return (gr.skip(),) * 3
            return choices, gr.Row(visible=bool(choices)), gr.Dropdown(choices=choices)

        opened.select(
            fill, offered, [offered, form, target], queue=False, show_progress="hidden", api_visibility="private"
        )
        for tool in tools(board):
            gr.api(_json_tool(tool), api_name=tool.__name__, queue=False)

    endpoint = Middleware(Endpoint, functions=functions, files={"cases/image": partial(cases.picture, board)})
    return app, endpoint, board.watch


def _json_tool(tool: Callable[..., Any]) -> Callable[..., str]:
    """Wrap an API function: return JSON text, for programs and agents, and report bad input as such
    to the caller.
    """

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> str:
        try:
            return json.dumps(tool(*args, **kwargs), ensure_ascii=False)
        except BadInput as error:
            raise gr.Error(str(error), print_exception=False) from None

    call.__annotations__ = {**tool.__annotations__, "return": "str"}
    call.__signature__ = inspect.signature(tool).replace(return_annotation=str)  # type: ignore[attr-defined]
    del call.__wrapped__
    return call


def serve(
    store: str | Path | None,
    port: int = 7860,
    host: str = "127.0.0.1",
    data: Sequence[str] = (),
    hidden: HiddenTest | None = None,
    names: Sequence[str] = (),
) -> None:
    """Serve the board and print its address; returns when interrupted.

    On a loopback address visitors act as the local user; then only that address and `names` are
    served.

    Args:
        store: The results store, as for `build_app`.
        port: TCP port.
        host: Address to listen on.
        data: Trusted datasets, as for `build_app`.
        hidden: A test with hidden answers.
        names: Further host names, such as that of a tunnel.

    Raises:
        BadInput: If `store` is not a results store, or the port is taken.
    """
    # The server handles many readers concurrently on few cores: threads inside matrix products
    # would only contend for them (measured: 1 ms becomes 85 ms).
    threadpool_limits(1, user_api="blas")
    may_write = host in LOOPBACK and not on_space()
    app, endpoint, begin = build_app(store, data, may_write=may_write, hidden=hidden)
    served = {*LOOPBACK, host, *names} if may_write else None
    options = launch_options(endpoint)
    options["app_kwargs"]["lifespan"] = access_lifespan(served, SPACE_FRAME_ANCESTORS if on_space() else "'none'")
    with redirect_stdout(StringIO()):  # Gradio announces its MCP server even with quiet=True
        try:
            app.launch(server_name=host, server_port=port, prevent_thread_lock=True, quiet=True, **options)
        except (OSError, OverflowError):  # the port is taken or invalid, or the address is not this machine's
            raise BadInput(
                f"the board cannot listen on {host}:{port}: another program (another board?) uses the port, or this machine has no "
                "such address. Give another --port."
            ) from None
    print(f"The board is on http://{host}:{port} (Ctrl-C stops it).", flush=True)
    begin()
    app.block_thread()


def launch_options(*middleware: Middleware) -> dict[str, Any]:
    """Return the arguments of `launch`: the board's look, and no connections to other hosts.

    `middleware`: serves the pages.
    """
    theme = gr.themes.Base(
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
        primary_hue="blue",
        neutral_hue="slate",
    )
    return {
        "theme": theme,
        "share": False,
        "footer_links": ["api"],
        "run_history": False,
        "ssr_mode": False,
        "max_file_size": MAX_FILE_BYTES,
        "enable_monitoring": False,  # Gradio would print its secret address
        "i18n": gr.I18n(en={"common.complete": "Done"}),  # Gradio lacks this translation and would announce the key
        "app_kwargs": {
            "middleware": [
                Middleware(GZipMiddleware, minimum_size=10_000, compresslevel=1),
                Middleware(BodyLimit),
                *middleware,
            ]
        },
        "state_session_capacity": MAX_SESSIONS,
        "head": f"<script>{_read(SCRIPTS)}</script>",
        "mcp_server": find_spec("mcp") is not None,  # the API for agents, at /gradio_api/mcp/
    }


def _html(content: str, elem_id: str | None = None, script: str | None = None) -> gr.HTML:
    return gr.HTML(content, elem_id=elem_id, apply_default_css=False, js_on_load=script)


def main() -> None:
    """Run as a Space, configured by environment variables; host and port are handled by Gradio.

    MEDPROBE_RESULTS: the store. MEDPROBE_DATA: datasets, separated by spaces. MEDPROBE_HIDDEN:
    three repositories (questions, answers, ledger). MEDPROBE_SCORINGS_PER_DAY: daily limit of the
    hidden test.
    """
    host = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    data = os.environ.get("MEDPROBE_DATA", "").split()
    hidden_repositories = os.environ.get("MEDPROBE_HIDDEN", "").split()
    if len(hidden_repositories) not in (0, 3):
        raise SystemExit("MEDPROBE_HIDDEN: give three repositories: the questions, the answers, the ledger.")
    per_day, port = (
        _positive_int_setting("MEDPROBE_SCORINGS_PER_DAY", 2),
        _positive_int_setting("GRADIO_SERVER_PORT", 7860),
    )
    hidden = (
        HiddenTest(hidden_repositories[0], hidden_repositories[1], hidden_repositories[2], per_day)
        if hidden_repositories
        else None
    )
    try:
        serve(os.environ.get("MEDPROBE_RESULTS") or None, port, host, data, hidden)
    except BadInput as error:
        raise SystemExit(f"error: {error}") from None


def _positive_int_setting(variable: str, otherwise: int) -> int:
    """Read a positive integer from an environment variable; exits if it is invalid."""
    setting = os.environ.get(variable, "").strip()
    if setting and not (setting.isascii() and setting.isdigit() and int(setting) > 0):
        raise SystemExit(f"{variable}: {setting[:40]!r} is not a positive integer.")
    return int(setting) if setting else otherwise


if __name__ == "__main__":
    main()
