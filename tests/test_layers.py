"""Test the order of the components (`docs/architecture.md`): imports point in one direction, there
are no cycles between files, light modules stay light, and a benchmark is named only in its own
packages.

Imports inside functions and under TYPE_CHECKING count, and so do dotted names by which a module is
looked up.
"""

import ast
import re
import sys
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from dataset_builders.benchmark_names import BENCHMARKS
from tests.processes import output_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"dataset_builders": 0, "eval_harness": 1, "leaderboard_space": 2, "curation": 2, "medprobe": 3}
"""Package -> its layer; a package may import those of lower layers."""


def read_order(text: str) -> dict[str, list[list[str]]]:
    """Package -> its components from the bottom to the top, those on one line together; what
    follows two spaces on a line is explanation.
    """
    block = text.split("## The components and their order")[1].split("```")[1]
    packages = [lines.strip().splitlines() for lines in block.split("\n\n")]
    return {
        name: [re.split("  +", line.strip())[0].split(", ") for line in reversed(components)]
        for name, *components in packages
    }


ORDER = read_order((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))

HEAVY_LIBRARIES = ("torch", "transformers", "gradio", "open_clip", "openai", "datasets")


def modules_of(root: Path) -> dict[str, Path]:
    """Return dotted name -> file for every module of the product."""
    files = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def imports(text: str) -> set[str]:
    """Return the dotted names that a module imports (`package.name` for a name imported from a
    package), and names of our modules that occur in it as strings.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports name their package"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names |= {node.value} & MODULES.keys()
        elif isinstance(node, ast.JoinedStr) and isinstance(head := node.values[0], ast.Constant):
            names |= {str(head.value).rstrip(".")} & MODULES.keys()
    return names


def module_named(name: str, modules: Iterable[str]) -> str | None:
    """Return the module that a dotted name denotes or belongs to; None if it is in another
    project.
    """
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


MODULES = modules_of(ROOT)


def place(module: str) -> tuple[str, int]:
    """Return the component of a module (`package.component`) and its position in the package,
    counted from the bottom. A package itself is below its components, unless it is listed.
    """
    package, _, inner_path = module.partition(".")
    component = inner_path.partition(".")[0]
    heights = {name: height for height, names in enumerate(ORDER[package]) for name in names}
    return (f"{package}.{component}", heights[component]) if component else (package, heights.get("__init__", -1))


def points_up(importer: str, imported: str) -> bool:
    (component, height), (imported_component, other_height) = place(importer), place(imported)
    package, other_package = component.partition(".")[0], imported_component.partition(".")[0]
    if package != other_package:
        return PACKAGES[other_package] >= PACKAGES[package]
    return component != imported_component and other_height >= height


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes of one cycle, each of which imports the next; an empty list if there is no
    cycle.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def wrong_imports(imported_by: dict[str, set[str]]) -> list[str]:
    """List violations of the order: imports that point up, cycles of files, and cycles of the parts
    of one package at any depth.
    """
    wrong = [
        f"{importer} imports {name}"
        for importer, names in imported_by.items()
        for name in names
        if points_up(importer, name)
    ]
    graphs: dict[str, dict[str, set[str]]] = {"files": imported_by}
    for importer, names in imported_by.items():
        for imported in names:
            path_a, path_b = importer.split("."), imported.split(".")
            depth = next((at for at, (a, b) in enumerate(zip(path_a, path_b, strict=False)) if a != b), None)
            if depth is not None:
                parts = graphs.setdefault(".".join(path_a[:depth]), {})
                parts.setdefault(".".join(path_a[: depth + 1]), set()).add(".".join(path_b[: depth + 1]))
    return sorted(wrong) + [" imports ".join(cycle) for graph in graphs.values() if (cycle := circle(graph))]


def test_every_component_has_one_place():
    for package, order in ORDER.items():
        existing_components = {module.split(".")[1] for module in MODULES if module.startswith(f"{package}.")}
        listed = [component for components in order for component in components if component != "__init__"]
        assert sorted(listed) == sorted(existing_components), (
            f"{package}: write down in docs/architecture.md where the component stands"
        )


def test_imports_point_one_way():
    imported_by = {
        module: {
            imported_module
            for name in imports(path.read_text(encoding="utf-8"))
            if (imported_module := module_named(name, MODULES))
        }
        - {module}
        for module, path in MODULES.items()
    }
    wrong = wrong_imports(imported_by)
    assert not wrong, "\n".join(wrong)


def test_the_board_loads_no_back_end_and_no_run():
    """Check with all modules of its own: a Space does not install packages that run models."""
    board = sorted(module for module in MODULES if module.startswith("leaderboard_space"))
    # this import keeps Gradio from writing stubs, which takes half of its import time
    code = f"import sys, importlib, tests.processes; [importlib.import_module(name) for name in {board!r}]; print(list(sys.modules))"
    loaded = ast.literal_eval(output_of([sys.executable, "-c", code], cwd=ROOT).splitlines()[-1])
    assert "leaderboard_space.submitting" in loaded
    assert not [
        name
        for name in loaded
        if name.startswith(
            (
                "eval_harness.models",
                "eval_harness.runs",
                "dataset_builders.build",
                "dataset_builders.images.phantom_drawings",
            )
        )
    ]


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("dataset_builders.build, dataset_builders.hub.repository", ("torch", "gradio")),
        ("eval_harness.derive.metrics", HEAVY_LIBRARIES),
    ],
)
def test_light_modules_import_nothing_heavy(modules, heavy):
    """See also: `import medprobe` (`test_api.py`)."""
    code = f"import sys, {modules}; print([name for name in {heavy!r} if name in sys.modules])"
    assert ast.literal_eval(output_of([sys.executable, "-c", code], cwd=ROOT)) == []


def test_a_public_class_has_a_name_of_its_own():
    """Names are unique in the whole product: a reader would have to look up a name with two
    meanings every time.
    """
    modules_by_class: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_by_class.setdefault(node.name, []).append(module)
    assert len(modules_by_class) > 200
    assert {name: modules for name, modules in modules_by_class.items() if len(modules) > 1} == {}


def test_the_files_that_the_docs_name_exist():
    """`<name>` stands for each benchmark; a page of docs/ may also name a file below tests/ or
    docs/.
    """
    path_pattern = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests|docs|benchmarks)/[\w./<>-]*)`")
    pages = {page: page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
    mentioned = [(page.name, path) for page, text in pages.items() for path in path_pattern.findall(text)]
    assert len([page for page, _ in mentioned if page in ("architecture.md", "CONTRIBUTING.md")]) > 40
    names = [name.replace("-", "_") for name in BENCHMARKS]
    missing = {
        (page, path)
        for page, path in mentioned
        for candidate in (path.replace("<name>", name) for name in (names if "<name>" in path else [""]))
        if not (ROOT / candidate).exists()
    }
    assert missing == set()


ALLOWED_NAMES = {
    "curation/report/quality.py": {"mediconfusion"},
    "curation/mediconfusion_export.py": {"mediconfusion"},
    "curation/commands/sets.py": {"probmed", "halt-medvqa"},
    "curation/gmai/benchmark_files.py": {"gmai-mmbench"},
}
"""The makers of custom sets and the report on one, each of which handles a single format."""


def test_only_benchmark_packages_name_a_benchmark():
    for module, path in MODULES.items():
        # This module lists the names.
        if "benchmarks" in module.split(".") or module == "dataset_builders.benchmark_names":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        benchmarks = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in BENCHMARKS
        }
        name = path.relative_to(ROOT).as_posix()
        assert benchmarks == ALLOWED_NAMES.get(name, set()), (
            f"{name} names {benchmarks}: move this to the benchmark's spec"
        )
