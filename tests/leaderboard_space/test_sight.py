"""Test runs without the right images on the board: they are never results of their own, and what
they show about a score is displayed beside it.
"""

import re
from pathlib import Path

import pytest

import medprobe
from eval_harness.store.sight import answered_shares, load_arms
from leaderboard_space.data.board import Board
from leaderboard_space.data.ranks.sights import metric_sights, section_mirages
from leaderboard_space.export import leaderboard_table
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from leaderboard_space.views import cases, model
from tests.helpers import edit_json
from tests.sides import run_arms, write_sides


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


def panel(service: Service, metric: str, **request: object) -> str:
    section = next(
        candidate for candidate in service.board.snapshot.sections["mediconfusion"] if candidate.benchmark == "sides"
    )
    page: str = service.view({"format": "mediconfusion", "section": section.key, "metric": metric, **request})["html"]
    return page


def test_what_comes_from_the_image_stands_beside_the_score(store: Path) -> None:
    service = Service(Board(store))
    service.board.prepare(service.board.snapshot)
    section = next(
        candidate for candidate in service.board.snapshot.sections["mediconfusion"] if candidate.benchmark == "sides"
    )
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
