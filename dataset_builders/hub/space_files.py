"""What a Space of the board is made of: the board's package, and beside it the modules of the lower layers that it imports.

A Space build sees only its own folder, so those modules travel with it. They are found by reading the import statements (nothing is
run), those inside functions too: they are needed sooner or later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

from dataset_builders.errors import BadInput
from dataset_builders.hub.card_header import read_card_header

OURS = frozenset({"dataset_builders", "eval_harness", "leaderboard_space", "curation", "medprobe"})
HEAVY = frozenset({"torch", "torchvision", "transformers", "accelerate", "open_clip", "openai"})
SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints"})

LAUNCHER = '''"""Starts the board. Written by `medprobe publish --space`; the board itself is the package {package}."""

import runpy

runpy.run_module("{package}.app", run_name="__main__")
'''


def space_files(folder: Path) -> tuple[dict[str, Path | bytes], list[str]]:
    """(path in the Space -> file or content, files left out).

    README.md (the Space's card) and requirements.txt go to the top, where a Space wants them, with an app.py that starts the package;
    the package keeps its name, so that its imports hold. Raises BadInput when the folder is no Space of that kind, or when
    what it imports is missing or too heavy for a Space.
    """
    folder = folder.resolve()
    _check(folder)
    files: dict[str, Path | bytes] = {"app.py": LAUNCHER.format(package=folder.name).encode()}
    for name in ("README.md", "requirements.txt"):
        files[name] = folder / name
    left_out = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or any(part in SKIPPED for part in inside.parts):
            continue
        if any(part.startswith(".") for part in inside.parts):
            left_out.append(inside.as_posix())
        elif inside.as_posix() not in ("README.md", "requirements.txt"):
            files[f"{folder.name}/{inside.as_posix()}"] = path
    for path, name in imported_modules(folder).items():
        files.setdefault(name, path)
    return dict(sorted(files.items())), left_out


def _check(folder: Path) -> None:
    for name in ("app.py", "README.md", "requirements.txt", "__init__.py"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder}: is no Space of the board: {name} is missing. Give the folder leaderboard_space.")
    try:
        card, _ = read_card_header(folder / "README.md")
    except (UnicodeDecodeError, yaml.YAMLError):
        card = None
    if card is None or card.get("sdk") != "gradio":
        raise BadInput(f"{folder / 'README.md'}: its metadata does not say `sdk: gradio`. Add it.")
    if card.get("app_file", "app.py") != "app.py":
        raise BadInput(f"{folder / 'README.md'}: its metadata names another app_file than app.py. Correct it.")
    if not any(_is_main(node) for node in ast.parse((folder / "app.py").read_text(encoding="utf-8")).body):
        raise BadInput(f'{folder / "app.py"}: has no `if __name__ == "__main__":`, so a Space would start nothing.')


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test) and "__main__" in ast.dump(node.test)


def imported_modules(folder: Path) -> dict[Path, str]:
    """Our modules that the package imports, itself not included, each with its path below the top of the Space."""
    roots = (folder.parent, Path(__file__).resolve().parents[2])
    found: dict[Path, str] = {}
    waiting = [(path, _name(path, folder.parent)) for path in folder.rglob("*.py")]
    seen = {name for _, name in waiting}
    while waiting:
        path, name = waiting.pop()
        for wanted in _imports(path, name):
            top = wanted.split(".")[0]
            if top in HEAVY:
                raise BadInput(f"{path}: imports {top}, which is too heavy for a Space. Move what needs it elsewhere.")
            if top not in OURS or wanted in seen:
                continue
            seen.add(wanted)
            there = _find(wanted, roots)
            if there is None:
                continue
            if top != folder.name:
                found[there[0]] = there[1]
            waiting.append((there[0], wanted))
            if wanted.endswith(".benchmarks"):  # finds its packages by their names, at run time
                for file in sorted(there[0].parent.glob("*/*.py")):
                    module = _name(file, there[0].parents[len(wanted.split("."))])
                    if module not in seen:
                        seen.add(module)
                        found[file] = file.relative_to(there[0].parents[len(wanted.split("."))]).as_posix()
                        waiting.append((file, module))
    return found


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _find(name: str, roots: tuple[Path, ...]) -> tuple[Path, str] | None:
    """(file, path in the Space) of a module; None for a name inside a module."""
    relative = name.replace(".", "/")
    for root in roots:
        for candidate in (f"{relative}.py", f"{relative}/__init__.py"):
            if (root / candidate).is_file():
                return root / candidate, candidate
    if "." not in name:
        raise BadInput(
            f"{name}: the board imports it, and it is not beside the board's folder. Publish from a checkout."
        )
    return None


def _imports(path: Path, name: str) -> Iterator[str]:
    """Full names of what a file imports: for `from a.b import c` a, a.b and a.b.c."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from _with_parents(base)
            for alias in node.names:
                yield f"{base}.{alias.name}"


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield from (other, *_statements(other))
            continue
        yield node
        yield from _statements(node)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
