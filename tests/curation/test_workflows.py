"""Whole workflows: a hospital's files through every command, and the tours of docs.

No command writes, prints, serves or sends a byte of the patients planted in a hospital's files. The
ward's files go through every command that the command line lists: a new command must be run here,
or be listed with the reason why it cannot meet a patient. At the end every output is searched: all
files below the folder, file names and Parquet cells included (except the user's own files, and keys
and lists that are private by design), both output streams, the pages, and every request to a
model's server.

docs/tour.md and docs/exam.md are run command by command, with drawn images and small models.
"""

import base64
import csv
import json
import random
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pydicom
import pytest
import typer.main
import yaml
from fastapi.testclient import TestClient
from huggingface_hub import HfApi
from PIL import Image, ImageDraw, ImageFont

from curation.exam.exam_tasks import TASKS
from curation.images.privacy import read_boxes
from curation.review.review import CHECK_FIELDS, SCORE_FIELDS, ReviewLog
from dataset_builders.hub.repository import open_repository
from leaderboard_space.data.board import Board
from medprobe import command_line, load_results
from tests.commands import medprobe
from tests.curation.commands import score_pair
from tests.curation.exam.studies import Studies
from tests.curation.model_server import model_server, stand_in_answer
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR
from tests.planting import KINDS, dicom_file, found_below, found_in, image_file, planted

USER_FILES = (r"^raw(/|$)", r"^given(/|$)")
"""The user's own files, which commands only read."""
PRIVATE_FILES = (r"\.key$", r"\.names\.csv$", r"\.left_out\.csv$")
"""Files that identify patients by design; only their owner can read them."""
COMMANDS_WITHOUT_PATIENTS = {
    "demo": "draws sets of its own",
    "board": "shows a store and built sets, which are searched, and reads nothing else",
}
"""Commands that cannot meet a patient -> reason."""
SET_FORMATS = {
    "pairs-set": "mediconfusion",
    "exam-set": "mediconfusion",
    "probe-set": "probmed",
    "halt-set": "halt-medvqa",
}


@dataclass
class Ward:
    """A hospital's files, and all commands, outputs and pages."""

    folder: Path
    people: list
    address: str = ""
    commands: list[str] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)

    def run(self, line, *arguments, code=0):
        """Run `medprobe LINE ARGUMENTS` in the ward's folder and return its output."""
        process = medprobe(*shlex.split(line), *arguments, cwd=self.folder, code=code, HF_TOKEN=CURATOR)
        self.commands.append(line)
        self.outputs.append(f"{process.stdout}{process.stderr}".encode())
        return process.stdout

    def ask(self, line):
        return self.run(f"{line} --model stand-in --base-url {self.address}")


def list_commands(group, words=()):
    """List all commands below a group of the command line."""
    if hasattr(group, "commands"):
        return {
            command_name
            for name, command in group.commands.items()
            for command_name in list_commands(command, (*words, name))
        }
    return {" ".join(words)}


def write_ward_files(folder, people, rng):
    """Write the ward's files.

    Images of every kind and DICOM files that identify their patients in every way, some of them
    broken, in folders named after patients; a table of facts (`words.csv`), and one whose captions
    name the patients (`notes.csv`).
    """
    raw_folder, given_folder = folder / "raw", folder / "given"
    given_folder.mkdir()
    rows = []
    for number in range(26):
        person = people[number % len(people)]
        person_folder = raw_folder / person.name.replace("^", " ") / person.position
        person_folder.mkdir(parents=True, exist_ok=True)
        # The last four are DICOM files, the others images of every kind.
        if number < 22:
            data, suffix = image_file(KINDS[number % len(KINDS)], person, rng)
            path = person_folder / f"{person.name} {number}{suffix}"
            path.write_bytes(data)
        else:
            path = person_folder / f"{person.number}.{number}.dcm"
            dicom_file(person, rng).save_as(path, enforce_file_format=True)
        rows.append(
            {
                "image": path.relative_to(raw_folder).as_posix(), "group": person.number, "patient_name": person.name,
                "seen_at": person.position,
                "caption": f"Picture {number}. " + "A bright spot on a grey ground, with some noise all over it. " * 3,
                "organ": ("chest", "brain", "knee")[number % 3], "modality": rng.choice(["CT", "MRI"]),
                "findings": rng.choice(["hernia", "aneurysm", "normal"]), "label": ("Effusion", "Mass")[number % 2],
                "license": "CC BY 4.0", "source": "Ward 7",
                "question": f"Which lesion of the {('chest', 'brain', 'knee')[number % 3]} is shown ({number})?",
                "option_A": "a cyst", "option_B": "a stone", "answer": "A",
            }
        )  # fmt: skip
    # Three pictures with a name burned in, which `curate texts` decides about.
    text = Image.fromarray(np.random.default_rng(3).integers(0, 50, (320, 320), dtype=np.uint8))
    ImageDraw.Draw(text).text((20, 30), "MUSTERFRAU^ERIKA", font=ImageFont.load_default(22), fill=235)
    for number in range(3):
        text.save(raw_folder / f"{people[0].name} {number}.png")
    for name in (
        f"{people[1].name}.png",
        f"{people[1].name}.dcm",
        f"broken.{people[1].number}",
        f"{people[1].name}.nii.gz",
    ):
        # Broken files that are named after a patient: messages about them must not repeat the name.
        (raw_folder / name).write_bytes(b"\x89PNG nothing")
    words = pd.DataFrame(rows)
    words.to_csv(given_folder / "words.csv", index=False)
    images = words[~words["image"].str.endswith(".dcm")]
    images.to_csv(given_folder / "images.csv", index=False)
    named_captions = words["patient_name"].str.replace("^", ", ") + " " + words["group"] + ": " + words["caption"]
    words.assign(caption=named_captions).to_csv(given_folder / "notes.csv", index=False)
    fakes = [{"question": f"Which moon is number {n}?", "options": ["Io", "Europa"]} for n in range(22)]
    write_lines(given_folder / "fakes.jsonl", fakes)
    (given_folder / "nifti").mkdir()
    (given_folder / "nifti" / f"{people[1].name}.nii.gz").write_bytes(b"nothing")
    columns = {"image": "image", "label": "label", "patient": "group"}
    labelled = {"path": "../raw", "annotations": "words.csv", "columns": columns, "region": "chest", "patients": "ward"}
    sets = [
        {"name": "films", "reader": "csv", "modality": "X-ray"} | labelled,
        {"name": "slices", "reader": "dicom"} | labelled,
        {"name": "volumes", "reader": "nifti", "path": "../raw", "annotations": "nifti", "classes": {1: "liver"}, "modality": "CT"},
    ]  # fmt: skip
    (given_folder / "about.yaml").write_text("deidentification: all metadata removed by the tool\n")
    (given_folder / "sources.yaml").write_text(
        yaml.safe_dump({"datasets": sets, "near_duplicate": -1, "per_patient": None})
    )


def write_studies(folder, people):
    """Write studies with geometry, in folders and with headers that identify their patients."""
    studies = Studies(folder, seed=1)
    for person in people:
        studies.write_patient(person.number, wrong_share=0.3)
    for path in folder.rglob("*.dcm"):
        data = pydicom.dcmread(path)
        person = next(person for person in people if person.number == data.PatientID)
        data.PatientName, data.PatientComments = person.name, person.everything
        data.InstitutionName = person.everything
        data.save_as(path)


def deidentify(ward, served):
    clean = ward.folder / "clean"
    ward.run("curate deidentify raw --out clean --table given/notes.csv --name-column patient_name")
    table = pd.read_csv(clean / "table.csv")
    assert table["caption"].str.contains("[removed]", regex=False).sum() == 26
    assert not set(table) & {"patient_name", "seen_at"}
    boxes = read_boxes(clean)
    assert {path.name for path in (clean / "pending").iterdir()} == boxes.keys() and len(boxes) == 3

    def decide(client):
        for decision in ("mask", "keep", "drop"):
            page = client.get("/item")
            image = page.json()["item"]
            decision_fields = {"item": image, "field": "decision", "value": decision}
            # Without the name of a reviewer, no decision counts.
            unsigned = client.post("/save", json=decision_fields | {"reviewer": " "})
            assert "error" in unsigned.json() and (clean / "pending" / image).is_file()
            yield from (page.content, client.get(f"/picture/0?item={image}").content)
            yield client.post("/save", json=decision_fields | {"reviewer": "Ada"}).content
            assert (clean / "images" / image).is_file() == (decision != "drop")
            assert not (clean / "pending" / image).exists()
            if decision == "mask":
                pixels = np.asarray(Image.open(clean / "images" / image).convert("L"))
                assert all((pixels[top:bottom, left:right] == 0).all() for left, top, right, bottom in boxes[image])
                assert pixels.max() < 50  # the background: no letter is left outside the boxes
        # A decided image is gone from the folder of pending ones.
        again = client.post("/save", json=decision_fields | {"reviewer": "Ada"})
        assert "cannot be decided here" in again.json()["error"]

    served(decide)
    ward.run("curate texts clean --port 0")
    report = json.loads((clean / "deidentification.json").read_text())
    assert report["files"] == {"dicom": 4, "images": 25} and sum(report["not_taken"].values()) == 4
    assert report["text"]["decisions"] == {"mask": 1, "keep": 1, "drop": 1} and report["text"]["undecided"] == 0
    assert report["groups"] == len(ward.people)
    assert "clean: g-" in ward.run(f"curate id {ward.people[1].number} clean")
    ward.ask("curate captions clean/table.csv --out facts.csv --tries 1")
    ward.run("curate probe clean/table.csv --images clean/images --out clean-set")


def mine(ward, served, models):
    for name in ("clip", "dinov2"):
        ward.run(f"curate embed raw --out embeddings --name {name} --device cpu --encoder transformers:{models / name}")
    thresholds = "--med-at-least=-1 --gen-at-most=1 --top 6 --cap-per-image 2 --near-duplicate=-1"
    ward.run(f"curate pairs embeddings --out pairs --med clip --gen dinov2 {thresholds} --table given/images.csv")
    ward.run("curate histograms pairs --embeddings embeddings --encoder dinov2 --out histograms.html")
    for line in (
        "write pairs --table given/images.csv --out questions --price 2.5,10",
        "categorize questions",
        "patterns questions",
    ):
        ward.ask(f"curate {line}")
    log = ReviewLog(ward.folder / "questions")
    pictures = [f"/picture/{side}?item={pair}" for pair in log.pairs for side in (0, 1)]
    served(lambda client: [client.get(path).content for path in ("/", "/item", *pictures)])
    ward.run("curate review questions --images raw --port 0")
    for at, pair in enumerate(log.pairs):
        # The low score rejects the first pair.
        score_pair(log, "Ada", pair, 9, 9 if at else 4)
    ward.run(
        "curate export pairs-set --questions questions --images raw --pairs pairs --table given/images.csv --no-text-search"
    )


def make_sets(ward, served):
    """Make a set of every other kind."""
    ward.run("curate probe given/images.csv --images raw --out probe-set --no-text-search")
    write_studies(ward.folder / "given" / "studies", ward.people)
    ward.run("curate exam given/studies --out exam-set --limit 2 --no-text-search")
    options = "given/images.csv --images raw --table given/images.csv --fake-questions given/fakes.jsonl"
    ward.run(f"curate hallucinate {options} --out halt-set --no-text-search --accept-text-alone")
    assert " x not a complete NIfTI file" in ward.run(
        "curate gmai given/sources.yaml --out gmai-set"
    )  # what is skipped is counted
    served(lambda client: [client.get(path).content for path in ("/", "/item")])
    ward.run("curate gmai-tag gmai-set --taggers Ada,Bo,Cy --port 0")
    ward.run("curate gmai-validate gmai-set --port 0")
    for name in SET_FORMATS:
        (ward.folder / name / "about.yaml").write_text("deidentification: all metadata removed by the tool\n")


def build_and_publish(ward):
    """Build every set, and again without one patient."""
    for name, family in SET_FORMATS.items():
        ward.run(f"build {family} --as {name} --source {name} --out data/{name}")
        ward.ask(f"curate quality data/{name} --out quality-{name}.html")
    ward.ask("curate quality gmai-set/dataset --out quality-gmai.html")
    for data in ("data/probe-set", "gmai-set/dataset"):
        ward.run(f"publish {data} ORG/set --private")
    # One patient withdraws; every set is rebuilt without that patient.
    withdrawn = ward.people[0].number
    for name, family in SET_FORMATS.items():
        ward.run(f"curate withdraw {name} --group {withdrawn}")
        ward.run(f"build {family} --as {name} --source {name} --out after/{name}")
    assert ward.run(f"curate id {withdrawn} clean clean-set").count("g-") == 2
    ward.run(f"curate withdraw clean --group {withdrawn}")
    table = pd.read_csv(ward.folder / "clean" / "table.csv")
    assert table["group"].nunique() == len(ward.people) - 1
    withdrawn_ids = set((ward.folder / "clean.withdrawn").read_text().split())
    assert len(withdrawn_ids) > 1 and not withdrawn_ids & {
        path.stem for path in (ward.folder / "clean" / "images").iterdir()
    }
    ward.run("diff data/probe-set after/probe-set")
    ward.run(f"curate withdraw gmai-set --group {withdrawn}")
    ward.run("curate gmai given/sources.yaml --out gmai-set")
    for command in ("export-tsv", "export-lmms-eval"):
        ward.run(f"{command} data/probe-set --out {command}")


def evaluate(ward, hub):
    for name in SET_FORMATS:
        server = f"--model openai:stand-in --base-url {ward.address} --cache replies"
        ward.run(f"eval {name} --data data/{name} {server} --out runs/{name}{' --arms' if name == 'probe-set' else ''}")
    tasks = {"models": ["baseline:chance"], "benchmarks": [{"benchmark": "halt-set", "data": "data/halt-set"}]}
    (ward.folder / "models.yaml").write_text(yaml.safe_dump(tasks))
    for line in (
        "sweep models.yaml --out sweep",
        "score runs/probe-set",
        "sight runs/probe-set",
        "adversarial-pairs runs/probe-set",
        "submit runs/probe-set --to store --account ada --data data/probe-set",
        "verify store --data data/probe-set",
        "rescore store --data data/probe-set",
        "results store --format csv",
        "list prompts",
        "compare runs/probe-set runs/probe-set",
    ):
        ward.run(line)
    # These commands refuse the run; their messages are searched, too.
    for line in (
        "aggregate best runs/probe-set runs/probe-set",
        "calibration runs/probe-set",
        "publish-score runs/probe-set ORG/model --dataset ORG/probe-set --dry-run",
    ):
        ward.run(line, code=2)
    result = next((ward.folder / "store").rglob("result.json")).parent.relative_to(ward.folder / "store")
    for number, name in enumerate(("probe-set", "halt-set"), 1):
        assert f"discussions/{number}" in ward.run(f"submit runs/{name} --to ORG/results")
    # The curator accepts one submission and refuses the other.
    proposed = (
        HfApi(endpoint=hub, token=CURATOR).repo_info("ORG/results", repo_type="dataset", revision="refs/pr/1").sha
    )
    ward.run(f"accept ORG/results@1 --data data/probe-set --commit {proposed}")
    ward.run("refuse ORG/results@2 --reason 'no patient agreed to it'")
    ward.run("withdraw store --reason 'asked to' --account ada", result)


def request_contents(log):
    """List the texts and images (bytes) of every request."""
    texts = repr(log.requests)
    return [texts.encode(), *(base64.b64decode(data) for data in re.findall(r"base64,([A-Za-z0-9+/=]+)", texts))]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_no_patient_leaves_by_any_command(models, tmp_path, local_hub, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    HfApi(endpoint=local_hub.endpoint, token=CURATOR).create_repo("ORG/results", repo_type="dataset")
    people = [planted(random.Random(seed)) for seed in (0, 1, 2, 7)]
    ward = Ward(tmp_path, people)
    write_ward_files(tmp_path, people, random.Random(1))
    hits = found_below(tmp_path, people)
    assert {hit.split(": ")[0] for hit in hits} >= {f"given/{name}.csv" for name in ("words", "images", "notes")}
    assert len(hits) > 500  # the search finds what was planted

    def served(visit):
        monkeypatch.setattr("uvicorn.run", lambda app, **_: ward.outputs.extend(visit(TestClient(app))))

    with model_server(stand_in_answer) as (ward.address, log):
        deidentify(ward, served)
        mine(ward, served, models)
        make_sets(ward, served)
        build_and_publish(ward)
        evaluate(ward, local_hub.endpoint)
    commands = list_commands(typer.main.get_command(command_line.app))
    ran = {command for command in commands for line in ward.commands if line.startswith(f"{command} ")}
    # A command added later must be run above or be listed with a reason.
    assert commands - ran == COMMANDS_WITHOUT_PATIENTS.keys()
    assert found_below(tmp_path, people, (*USER_FILES, *PRIVATE_FILES)) == []
    everything = (*ward.outputs, *request_contents(log), caplog.text.encode())
    assert [hit for text in everything for hit in found_in(text, people)] == []
    private = [path for path in tmp_path.rglob("*") if any(re.search(pattern, path.name) for pattern in PRIVATE_FILES)]
    assert len(private) >= 6
    assert [path.name for path in private if path.stat().st_mode & 0o077] == []


# The tours of docs

ROOT = Path(__file__).resolve().parents[2]
IMAGE_COUNT = 30


def run_page(page, folder, stand_ins, **environment):
    """Run the commands of a page of docs, with other words for some; return command -> output."""
    blocks = re.findall(r"(?ms)^```bash\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.splitlines()]
    outputs = {}
    for line in lines:
        command = line
        for text, replacement in stand_ins.items():
            command = command.replace(text, replacement)
        program, *arguments = shlex.split(command)
        if program == "python":
            words = [sys.executable, ROOT / arguments[0], *arguments[1:]]
            outputs[line] = subprocess.run(words, check=True, cwd=folder, capture_output=True).stdout
        else:
            outputs[line] = medprobe(*arguments, cwd=folder, **environment).stdout
    assert len(outputs) == len(lines)
    return outputs


@pytest.fixture
def served(monkeypatch):
    """List the (store, built sets) of every board that is served."""
    boards = []
    monkeypatch.setattr("leaderboard_space.app.serve", lambda store, **options: boards.append((store, options["data"])))
    return boards


def draw_images(folder):
    """Draw spots on a grey ground, with captions. Two images each are of one patient.

    The images are too small to be searched for burned-in text, which would take half a minute.
    """
    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:60, :60]
    rows = [("image", "caption", "group", "license", "source")]
    for k in range(IMAGE_COUNT):
        spot = 150 * np.exp(-((x - rng.integers(10, 50)) ** 2 + (y - rng.integers(10, 50)) ** 2) / 60)
        picture = np.clip(30 + 2 * k + spot + rng.normal(0, 8, (60, 60)), 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / "images" / f"{k}.png")
        rows.append(
            (f"{k}.png", f"Drawn picture {k}. " + "A bright spot on a grey ground. " * 4, k // 2, "CC0-1.0", "drawn")
        )
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_tour_puts_a_custom_benchmark_on_the_board(models, tmp_path, monkeypatch, served):
    draw_images(tmp_path)

    def review(app, **_):
        """Review through the page: all pairs but the first are good."""
        client = TestClient(app)
        for index, pair in enumerate(ReviewLog(tmp_path / "questions").pairs):
            assert client.get("/picture/0", params={"item": pair}).status_code == 200
            for name, value in (
                (SCORE_FIELDS[0], "9"),
                (SCORE_FIELDS[1], "8" if index else "3"),
                *((check, "yes") for check in CHECK_FIELDS),
            ):
                decision = {"reviewer": "Ada", "item": pair, "field": name, "value": value, "seen": None}
                assert client.post("/save", json=decision).json()["said"].startswith("saved")

    monkeypatch.setattr("uvicorn.run", review)
    with model_server(stand_in_answer) as (address, _):
        # The tour's models are too large for a test; its other words are run as they are.
        stand_ins = {
            "--encoder biomedclip": f"--encoder open_clip:local-dir:{models / 'biomedclip'}",
            "--encoder dinov2": f"--encoder transformers:{models / 'dinov2'}",
            "--top 30": "--top 30 --med-at-least=-1 --gen-at-most=1",  # random weights see hardly any difference
            "http://127.0.0.1:8000/v1": address,
        }
        outputs = run_page("tour.md", tmp_path, stand_ins, OPENAI_API_KEY="none")
    assert len(outputs) > 12
    pairs = pd.read_parquet(tmp_path / "pairs" / "pairs.parquet")
    counts = json.loads((tmp_path / "pairs" / "report.json").read_text())["counts"]
    assert (len(pairs), counts["found"], counts["same_group"]) == (
        IMAGE_COUNT // 2,
        # With these thresholds, every two images count as similar.
        IMAGE_COUNT * (IMAGE_COUNT - 1) // 2,
        IMAGE_COUNT // 2,
    )
    # No image is in two pairs.
    assert pd.concat([pairs["image_1"], pairs["image_2"]]).value_counts().max() == 1
    funnel = json.loads((tmp_path / "our-hospital" / "funnel.json").read_text())
    # The reviewer rejects one pair.
    assert funnel["exported"] == funnel["review"]["kept"] == len(pairs) - 1
    rows = open_repository(tmp_path / "data" / "our-hospital").questions("test")
    assert all(list(value) == ["Pulmonary"] for value in rows["categories"])
    quality = json.loads((tmp_path / "quality.json").read_text())
    assert quality["of_pairs"]["pairs"] == len(pairs) - 1 and quality["images_seen"] == quality["images"]
    results = outputs["medprobe results"].splitlines()
    assert results[0].split()[2] == "our-hospital" and {line.split()[0] for line in results[2:5]} == {
        "Chance",
        "NAME",
        "guessing",
    }
    assert served == [("store", ["data/our-hospital"])]
    [section] = [
        candidate
        for candidate in Board(tmp_path / "store").snapshot.sections["mediconfusion"]
        if candidate.kind == "custom"
    ]
    assert (section.title(), section.questions, len(section.entries)) == ("our-hospital", 2 * (len(pairs) - 1), 2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.exhaustive
def test_the_tour_puts_an_exam_on_the_board(tmp_path, monkeypatch, served):
    # The search, which takes most of the time, has tests of its own.
    monkeypatch.setattr("curation.exam.pairs.find_text", lambda image, letters: [])
    run_page("exam.md", tmp_path, {"demo/models/tiny-vlm": "baseline:chance"})
    assert served == [("demo", ["demo/data/exam"])]
    labels = load_results(tmp_path / "demo")["facet_value"]
    assert {task.ability for task in TASKS.values()} <= set(labels)
