"""Test what stands beside the models' ranked results: people who read the same questions (the same
numbers on every route, no rank), and runs without the right images, which are never results of
their own: what they show about a score is displayed beside it.
"""

import json
import random
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

import medprobe
from eval_harness.store.comparison import align_sides, load_side, score_differences
from eval_harness.store.reader_study import study_readers
from eval_harness.store.sight import answered_shares, load_arms
from leaderboard_space.data.board import Board
from leaderboard_space.data.sections import Section
from leaderboard_space.data.standings import metric_sights, section_mirages
from leaderboard_space.export import leaderboard_table
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from leaderboard_space.views import cases, model
from tests.commands import medprobe as command
from tests.helpers import edit_json
from tests.sides import run_arms, write_sides

LIMIT = 16


@pytest.fixture(scope="module")
def runs(phantoms, tmp_path_factory):
    """Readers of the first questions and of all, models of all questions and of the first."""
    folder, letters = tmp_path_factory.mktemp("readers"), {}

    class Someone:
        needs_images = False

        def __init__(self, name, kind, skill):
            self.model, self.skill = medprobe.Model(name=name, kind=kind), skill

        def generate(self, requests):
            for asked in requests:
                rng = random.Random(f"0 {self.model.name} {asked.question_id}")
                pick = rng.choices(("right", "wrong", "none"), (self.skill, 1 - self.skill, 0.1))[0]
                text = {"right": "AB"[asked.answer[0]], "wrong": "BA"[asked.answer[0]], "none": "I cannot tell."}[pick]
                letters.setdefault(self.model.name, {})[asked.question_id] = (text, pick == "right")
                yield text

    def run(name, kind, skill, limit=None, out=None):
        medprobe.evaluate(
            "mediconfusion", Someone(name, kind, skill), data=phantoms, limit=limit, out=folder / (out or name)
        )

    for name, kind, skill, limit in (
        *(("R1", "human", 0.9, LIMIT), ("R2", "human", 0.7, LIMIT), ("R3", "human", 0.8, None)),
        *(("Big", "proprietary", 0.6, None), ("Small", "open", 0.5, None), ("Part", "open", 0.5, LIMIT)),
    ):
        run(name, kind, skill, limit)
    run("Big", "proprietary", 0.6, LIMIT, "big-part")
    return folder, letters


def rights(letters, ids):
    """Pair -> whether both images were answered correctly."""
    pairs = {question_id.split("-")[0] for question_id in ids}
    return {pair: all(letters[f"{pair}-{image}"][1] for image in "12") for pair in pairs}


def test_readers_and_models_meet_on_the_questions_of_both(runs):
    folder, letters = runs
    side = {name: load_side(str(folder / name), list) for name in (*letters, "big-part")}
    groups = study_readers([side[name] for name in letters])
    assert [{name for name, _ in group.readers} for group in groups] == [{"R1", "R2"}, {"R3"}]
    assert [len(group.contrasts) for group in groups] == [2 * 3, 3]
    for contrast in (contrast for group in groups for contrast in group.contrasts):
        ids = letters[contrast.reader].keys() & letters[contrast.model].keys()
        reader, model = (rights(letters[name], ids) for name in (contrast.reader, contrast.model))
        values = [100 * sum(right.values()) / len(right) for right in (reader, model)]
        assert contrast.n == len(ids) // 2 and [contrast.reader_value, contrast.model_value] == pytest.approx(values)
        assert (
            contrast.low <= contrast.lower == pytest.approx(values[0] - values[1]) and contrast.lower <= contrast.high
        )
    # A run that was asked only the part gives the same comparison as the part of the whole run.
    part, whole = (score_differences(*align_sides(side["R1"], side[name])) for name in ("big-part", "Big"))
    assert part.equals(whole) and (part["test"].dropna() != "unpaired").all()
    assert (
        align_sides(side["Big"], side["R1"])[1] is side["R1"] and align_sides(side["R3"], side["Big"])[0] is side["R3"]
    )


def test_agreement_and_common_failures(runs):
    folder, letters = runs
    group = study_readers([load_side(str(folder / name), list) for name in letters])[0]
    ids = letters["R1"].keys()
    right = {name: rights(letters[name], ids) for name in letters}
    assert group.median_value == pytest.approx(sum(100 * sum(right[name].values()) / 8 for name in ("R1", "R2")) / 2)
    failed = {
        pair
        for pair in right["R1"]
        if sum(not right[name][pair] for name in ("R1", "R2")) > 1
        and sum(not right[name][pair] for name in ("Big", "Small", "Part")) > 1
    }
    assert group.failed_cases == sorted(failed) and group.cases == 8
    chosen = [[letters[name][key][0] for name in ("R1", "R2") if len(letters[name][key][0]) == 1] for key in ids]
    pairs = [pair for pair in chosen if len(pair) == 2]
    counts = Counter(letter for pair in pairs for letter in pair)
    total = sum(counts.values())
    expected = sum(2 * counts[a] * counts[b] for a, b in combinations(counts, 2)) / (total - 1)
    assert group.alpha == pytest.approx(1 - 2 * sum(a != b for a, b in pairs) / expected)


@pytest.mark.exhaustive
def test_the_command_and_the_board_say_the_same_and_rank_no_person(runs, phantoms):
    folder, names = runs[0], ["R1", "R3", "Big", "Part"]
    said = command("compare", *names, cwd=folder).stdout
    contrasts = json.loads(command("compare", *names, "--format", "json", cwd=folder).stdout)
    assert re.search(
        r"^R1 [\d.]+ % \(95 % interval .*\) on 8 pairs; (Big|Small|Part) \d+ points (lower|higher) \(", said, re.M
    )
    assert (
        "none of these results is of a person" in command("compare", "Big", "Small", "Part", cwd=folder, code=2).stderr
    )
    assert "R1 on mediconfusion (a person)" in command("compare", "Big", "R1", cwd=folder).stdout
    assert re.search(r"^R1 .*, a person,", command("results", "R1", "Big", cwd=folder).stdout, re.M)
    for name in names:
        done = command(
            "submit", name, "--to", "store", "--data", phantoms / "mediconfusion", "--with-questions", cwd=folder
        )
        assert ("no one can verify" in done.stdout + done.stderr) == name.startswith("R")
    service = Service(Board(folder / "store"))
    for section in service.board.snapshot.sections["mediconfusion"]:
        html = service.view({"format": "mediconfusion", "section": section.key})["html"]
        shown = [
            re.findall(r"<t[hd][^>]*>(?:<b>)?([^<]*)", row)
            for row in html.split('data-table="readers"')[1].split("<tr>")[2:]
        ]
        rows = [(row[0], row[1], int(row[2]), float(row[3]), float(row[4])) for row in shown]
        keys = ("reader", "model", "n", "reader_value", "model_value")
        assert sorted(rows) == sorted(
            tuple(round(row[key], 1) if key[-1] == "e" else row[key] for key in keys) for row in contrasts
        )
        for row in re.findall(r'<tr class="k-human.*?</tr>', html.split('data-table="readers"')[0], re.S):
            assert ">ref<" in row and "A person: shown for comparison, not ranked." in row
        assert html.count('class="k-human') >= 2 and not re.search(r'class="finding">[^<]*R\d', html)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with two models, each with its arms, and a baseline without arms."""
    folder = tmp_path_factory.mktemp("sight")
    write_sides(folder)
    arms = run_arms(folder)
    runs = [path for name in ("Pixels", "SaysA") for path in (arms[name], *folder.glob(f"{name}-*"))]
    runs.append(medprobe.evaluate("sides", "baseline:chance", data=folder / "data", out=folder / "chance").folder)
    places = {medprobe.submit(run, folder / "store").location for run in runs}
    assert len(places) == 9  # equal answers in two arms still give two results
    return folder / "store"


def sides_section(board: Board) -> Section:
    return next(section for section in board.snapshot.sections["mediconfusion"] if section.benchmark == "sides")


def panel(service: Service, metric: str) -> str:
    section = sides_section(service.board)
    page: str = service.view({"format": "mediconfusion", "section": section.key, "metric": metric})["html"]
    return page


@pytest.mark.exhaustive
def test_what_comes_from_the_image_stands_beside_the_score(store: Path) -> None:
    service = Service(Board(store))
    service.board.prepare(service.board.snapshot)
    section = sides_section(service.board)
    assert sorted(entry.result.model.name for entry in section.entries) == ["Chance", "Pixels", "SaysA"]
    sight_by_model = {key.split("/")[1]: sight for key, sight in metric_sights(section, "individual_accuracy").items()}
    for name, sight in sight_by_model.items():
        table = medprobe.load_run(store.parent / name).sight.set_index("metric").loc["individual_accuracy"]
        assert (sight.value, sight.low, sight.high, sight.sees) == (
            table["from_image"],
            table["low"],
            table["high"],
            table["sees"],
        )
    assert set(sight_by_model) == {"Pixels", "SaysA"}
    mirages = {key.split("/")[1]: share for key, share in section_mirages(section).items()}
    assert set(mirages) == set(sight_by_model)
    for name, share in mirages.items():
        assert share == answered_shares(load_arms([store.parent / name])[0])[0] and share.value == 100
    panel_html = panel(service, "individual_accuracy")
    rows = {}
    for row in (part.split("</tr>")[0] for part in panel_html.split("<tr ")):
        rows |= {name: row for name in (*sight_by_model, "Chance") if f">{name}<" in row}
    assert "50 (38 to 65)" in rows["Pixels"] and 'class="rest"' in rows["Pixels"]
    assert ">–</td>" in rows["Chance"] and 'class="rest"' not in rows["Chance"]
    assert all(re.search(r'abst"[^>]*data-v="100', rows[name]) for name in mirages)
    assert re.search(r'img" data-v="50.0"', rows["Pixels"])  # the value by which the column is sorted
    query = parse_query(
        service.board, {"format": "mediconfusion", "section": section.key, "metric": "individual_accuracy"}
    )
    saved = {row["model"]: row["from_image"] for row in leaderboard_table(section, query.standings, ())}
    assert saved == {"Pixels": 50, "SaysA": 0, "Chance": None}
    assert "From the image" not in panel(service, "confusion")
    page = model.page(service.board, {"id": "Pixels"})
    assert "MediConfusion (sides): Of 100 points, 100 need the image (95 to 100)." in page
    case = str(medprobe.open_dataset(str(store.parent / "data")).questions("test")["case_id"][0])
    page = cases.page(service.board, {"id": case, "set": f"mediconfusion/{section.key}"})
    assert page.count("a grey image") == page.count("no image") == 4 and len(re.findall("image i-", page)) == 4


def test_arms_of_another_account_say_nothing(store: Path, tmp_path: Path) -> None:
    for path in store.rglob("acceptance.json"):
        if "-swapped-" in path.parent.name:
            edit_json(path, lambda document: document.update(account="somebody"))
    service = Service(Board(store))
    service.board.prepare(service.board.snapshot)
    assert "From the image" not in panel(service, "individual_accuracy")
