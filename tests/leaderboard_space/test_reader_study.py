"""Readers beside models: the same questions, the same numbers on every route, no rank."""

import json
import random
import re
from collections import Counter
from itertools import combinations

import pytest

import medprobe
from eval_harness.store.comparison import align_sides, load_side, score_differences
from eval_harness.store.reader_study import study_readers
from leaderboard_space.data.board import Board
from leaderboard_space.service import Service
from tests.commands import medprobe as command

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
