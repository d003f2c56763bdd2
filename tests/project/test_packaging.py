"""Check what packagers need: a wheel outside the repository, and an install without extras."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dataset_builders.errors import EXTRAS
from medprobe import __version__, load_results
from tests.environments import NO_INDEX, environment
from tests.localhub.fixture import python_with_requirements, python_without_project, resolve_requirements
from tests.processes import output_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGE_NAMES = ("dataset_builders", "eval_harness", "leaderboard_space", "curation", "medprobe")


def packaged() -> list[Path]:
    """Return every file that belongs to the packages, relative to the repository."""
    paths = [path for name in PACKAGE_NAMES for path in (ROOT / name).rglob("*") if path.is_file()]
    return [path.relative_to(ROOT) for path in paths if "__pycache__" not in path.parts]


OPTIONAL_LIBRARIES = {"inspect": "inspect_ai", "ray": "ray"}
"""Extra that is not in the development set -> the library that it provides."""
TOOLS = {"docs"}
"""Extras of programs that are run and never imported."""


def third_party(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - set(PACKAGE_NAMES)


@pytest.mark.exhaustive
def test_every_library_the_code_imports_is_a_dependency_or_belongs_to_a_named_extra():
    owners = packages_distributions()
    core = resolve_requirements(PROJECT["dependencies"])
    by_extra = {
        extra: resolve_requirements([line for line in lines if not line.startswith("medprobe[")]) | core
        for extra, lines in PROJECT["optional-dependencies"].items()
        if extra not in {*OPTIONAL_LIBRARIES, *TOOLS}
    }
    # not in the development set, but tested in environments of their own
    for extra, name in OPTIONAL_LIBRARIES.items():
        assert EXTRAS[name] == extra
        assert [canonicalize_name(Requirement(line).name) for line in PROJECT["optional-dependencies"][extra]] == [
            canonicalize_name(name)
        ]
    imported = {name for path in packaged() if path.suffix == ".py" for name in third_party(ROOT / path)}
    for name in (imported | set(EXTRAS)) - set(OPTIONAL_LIBRARIES.values()):
        distributions = {canonicalize_name(owner) for owner in owners[name]}
        if distributions & core:
            assert name not in EXTRAS
        else:
            assert name in EXTRAS, (
                f"{name} is no dependency, and dataset_builders.errors does not say which extra has it"
            )
            assert distributions & by_extra[EXTRAS[name]], f"{name} does not come with the extra {EXTRAS[name]}"


@pytest.mark.exhaustive  # asks the package index
@pytest.mark.timeout(900)
def test_each_extra_can_be_installed_by_what_metadata_say(request, tmp_path):
    """installing all together shows that each alone can be installed"""
    uv = environment(request.config.cache, "uv", ("uv",), with_ours=False).with_name("uv")
    target = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
    command = [
        uv,
        "pip",
        "compile",
        "--quiet",
        *target,
        "--all-extras",
        "-o",
        tmp_path / "pins.txt",
        ROOT / "pyproject.toml",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and "No solution" not in done.stderr and NO_INDEX.search(done.stderr):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr


COMMANDS = """
import contextlib, io, json, sys
from medprobe.__main__ import main
said = []
for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command
    out, code = io.StringIO(), 0
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            code = end.code
        except BaseException as end:
            code = repr(end)
    said.append([code, out.getvalue()])
print(json.dumps(said))
"""

CALLS = """
import medprobe
for call in (lambda: medprobe.evaluate("mediconfusion", "SOME/model"), medprobe.load_run("run").plot):
    try:
        call()
    except medprobe.BadInput as error:
        print(error)
"""


@pytest.mark.exhaustive  # has its own environment and process
def test_without_extras_a_command_that_needs_one_is_one_line_and_writes_nothing(tmp_path):
    python, workdir = python_with_requirements(PROJECT["dependencies"], tmp_path / "venv"), tmp_path / "workdir"
    workdir.mkdir()
    evaluate = ("eval", "mediconfusion", "--model")
    refused_commands = [
        (("demo",), "eval,space"),
        (("demo", "--no-serve"), "eval"),
        (("board",), "space"),
        ((*evaluate, "SOME/model"), "eval"),
        (("curate", "embed", "data", "--out", "new"), "curation"),
        (("curate", "pairs", "data", "--out", "new"), "curation"),
    ]
    served = (*evaluate, "openai:some", "--base-url", "http://127.0.0.1:9/v1", "--out", "served")
    needless = [("build", "mediconfusion"), (*evaluate, "baseline:chance", "--out", "run"), served]
    commands = [*needless, *(command for command, _ in refused_commands)]
    options = {"cwd": workdir, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    results = json.loads(output_of([python, "-c", COMMANDS, json.dumps(commands)], **options).splitlines()[-1])
    (built, _), (chance, _), (served_code, about), *refusals = results
    assert (built, chance) == (0, 0)
    # servers are asked without any extra
    assert served_code == 2 and "no server answers at this address" in about
    for (command, extra), (code, message) in zip(refused_commands, refusals, strict=True):
        assert code == 2, (command, code, message)
        assert len(message.splitlines()) == 1 and f"'medprobe[{extra}]'" in message, (command, message)
    assert sorted(path.name for path in workdir.iterdir()) == ["data", "run", "served"]
    model, plot = output_of([python, "-c", CALLS], **options).splitlines()
    assert "'medprobe[eval]'" in model and "'medprobe[plot]'" in plot


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return a copy of the repository's packages, because building leaves files behind."""
    source = tmp_path_factory.mktemp("source")
    for path in [*packaged(), *map(Path, ("pyproject.toml", "README.md", "LICENSE"))]:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, source / path)
    return source


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """Build the wheel as a packager does."""
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--wheel-dir", out, source)
    (built,) = out.iterdir()
    return built


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", *arguments]
    output_of([*command, "--no-deps", "--no-index"])


@pytest.fixture
def installed(wheel, tmp_path):
    """Create a virtual environment with the libraries and the installed wheel; return its `bin`."""
    python = python_without_project(tmp_path / "venv")
    pip("--python", python, "install", wheel)
    return python.parent


def outside(program, *arguments, cwd):
    """Run a program in a folder that is not the repository; return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return output_of([program, *arguments], cwd=cwd, env=environment)


@pytest.mark.exhaustive
def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel):
    inside = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    assert {path for path in inside if not path.parts[0].endswith(".dist-info")} == set(packaged())


@pytest.mark.exhaustive
def test_the_source_distribution_is_the_repository(tmp_path):
    """It contains every tracked file except those in hidden paths, so a wheel can be built and the
    tests run from it.
    """
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git repository")
    tracked = {name for name in listed.stdout.splitlines() if not name.startswith(".")}
    copy = tmp_path / "copy"
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    code = f"import setuptools.build_meta as build; print(build.build_sdist({str(tmp_path)!r}))"
    archive = tmp_path / output_of([sys.executable, "-c", code], cwd=copy).splitlines()[-1]
    with tarfile.open(archive) as file:
        inside = {member.name.partition("/")[2] for member in file.getmembers() if member.isfile()}
    assert tracked <= inside, sorted(tracked - inside)[:10]
    generated_files = ("PKG-INFO", "setup.cfg", "medprobe.egg-info/")
    assert not [name for name in inside - tracked if not name.startswith(generated_files)]
    if find_spec("twine") is None:
        pytest.skip("the sdist is complete; `twine check` was not run: twine is not installed")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", archive], check=True, timeout=100)


READS_ITS_DATA = """
import json, medprobe
correct = medprobe.load_run("run").answers["correct"]
print(json.dumps([medprobe.__file__, len(medprobe.load_results(published=True)), bool(correct.all())]))
"""


@pytest.mark.exhaustive  # its commands are processes of their own
def test_the_installed_wheel_works_outside_the_repository(installed, tmp_path):
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    assert outside(installed / "medprobe", "--version", cwd=workdir) == f"medprobe {__version__}\n"
    outside(installed / "medprobe", "build", "probmed", cwd=workdir)
    outside(installed / "medprobe", "eval", "probmed", "--model", "baseline:oracle", "--out", "run", cwd=workdir)
    assert json.loads((workdir / "run/result.json").read_text())["scores"]["overall"]["value"] == 100
    package_path, published, correct = json.loads(
        outside(installed / "python", "-c", READS_ITS_DATA, cwd=workdir).splitlines()[-1]
    )
    assert Path(package_path).is_relative_to(installed.parent)
    assert published == len(load_results(published=True)) and correct


def test_badges_and_pictures_are_true():
    """Without a public address of the project, badges are files with the values of pyproject.toml
    and pictures have relative paths. With an address they must have absolute URLs, since a package
    index shows README.md but has no files.
    """
    badge_texts = {path.stem: path.read_text() for path in (ROOT / "docs" / "badges").glob("*.svg")}
    expected = {"python": PROJECT["requires-python"].removeprefix(">=") + "+", "license": PROJECT["license"]}
    assert {name: re.findall(r"<title>.*?: (.*)</title>", text) for name, text in badge_texts.items()} == {
        name: [value] for name, value in expected.items()
    }
    assert all(text.count(expected[name]) == 3 for name, text in badge_texts.items())
    address = PROJECT.get("urls", {}).get("Repository")
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert target.startswith(f"{address}/") if address else (ROOT / target).is_file(), target
