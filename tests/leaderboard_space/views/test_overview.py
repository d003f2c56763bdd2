"""The first screen and topics: every number, mark and sentence against the raw tables, and a search that forgives."""

import html
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dataset_builders.errors import BadInput
from eval_harness.records.result import Score
from eval_harness.scores.intervals import printed_interval, verdict
from leaderboard_space.benchmarks import headline_of
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.ranks.significance import holm, p_against_guessing, verdicts
from leaderboard_space.data.ranks.standings import info_of, with_interval
from leaderboard_space.data.topics import known_topics, matching, relation, slug_of, topics
from leaderboard_space.front import OverviewPages
from leaderboard_space.html import number
from leaderboard_space.service import Service
from leaderboard_space.views.addresses import address_of
from leaderboard_space.views.model_pages import model
from tests.leaderboard_space.checks.claims import plain, rounds_to

PUBLISHED = board_results()
FORMATS = ["mediconfusion", "probmed", "gmai-mmbench", "halt-medvqa", "probmed-vqa-rad"]
MARKS = {"v-better": "▲", "v-same": "≈", "v-worse": "▼", "v-untested": "·"}


@pytest.fixture(scope="module")
def front() -> OverviewPages:
    return OverviewPages(Service(Board(None, PUBLISHED)))


def matrix(page: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """Model -> per column (class, value, mark, what is heard)."""
    found = {}
    body = page[page.index('<table class="matrix"') : page.index("</table>")]
    for key, line in re.findall(r'<tr data-key="([^"]*)">(.*?)</tr>', body):
        cells = []
        for kind, inner in re.findall(r'<td class="([\w-]+)[^"]*"[^>]*>(.*?)</td>', line):
            value, mark, heard = (
                re.search(pattern, inner) for pattern in (r"<b>(.*?)</b>", r'true">(.)</span>', r'"hear">(.*?)</span>')
            )
            cells.append(
                (kind, html.unescape(value[1]) if value else "", mark[1] if mark else "", heard[1] if heard else "")
            )
        found[html.unescape(key)] = cells
    return found


def test_the_matrix_shows_the_papers_numbers_and_no_average(front: OverviewPages) -> None:
    page = front.page({"all": "1"})
    shown = matrix(page)
    wanted: dict[str, dict[str, list[float]]] = {}
    for result in PUBLISHED:
        if result.model.kind == "baseline" or result.benchmark.name not in FORMATS or result.benchmark.split != "test":
            continue
        score = result.scores.get(headline_of(result.benchmark.name))
        if score is not None and score.value is not None:
            wanted.setdefault(result.model.name, {}).setdefault(result.benchmark.name, []).append(score.value)
    assert set(shown) == set(wanted) and "average" not in plain(page)
    for name, cells in shown.items():
        assert len(cells) == len(FORMATS)
        for family, (kind, value, mark, heard) in zip(FORMATS, cells, strict=True):
            known = wanted[name].get(family)
            assert (kind == "none") == (known is None), (name, family)
            if known is not None:
                assert any(rounds_to(value, one) for one in known), (name, family, value, known)
                assert mark == MARKS[kind] and "guessing" in heard


def test_the_marks_hold_for_all_of_them_together(front: OverviewPages) -> None:
    """No mark says better or worse where an exact test of that cell alone would not, at the strictest correction (Bonferroni's) of the
    first of them; and every cell that even this calls different is marked so."""
    found = front.overview()
    assert found.tested == sum(cell.verdict is not None for line in found.lines for cell in line.cells.values())
    assert found.columns[0].family == "mediconfusion" and found.columns[0].chance == 25.0
    for line in found.lines:
        for family, cell in line.cells.items():
            column = next(column for column in found.columns if column.family == family)
            if column.drawn or cell.verdict is None:
                continue
            assert column.chance is None or cell.row.run or column.chance == pytest.approx(cell.score.chance, abs=1e-6)
            hits = round((cell.score.value or 0) * cell.score.n_cases / 100)
            p = stats.binomtest(hits, cell.score.n_cases, (cell.score.chance or 0) / 100).pvalue
            if cell.verdict != "no different":
                assert p < 0.05 and (cell.verdict == "better") == ((cell.score.value or 0) > (cell.score.chance or 0))
            wide = (cell.score.low or 0) - 1.5 * ((cell.score.high or 0) - (cell.score.low or 0)) > (
                cell.score.chance or 0
            )
            if wide and p * found.tested < 0.01:
                assert cell.verdict == "better", (line.name, family)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=30))
def test_holm_keeps_the_order_and_rejects_no_more_than_each_alone(p: list[float | None]) -> None:
    found = holm(p)
    tested = [(a, b) for a, b in zip(p, found, strict=True) if a is not None and b is not None]
    assert len(tested) == sum(a is not None for a in p) == sum(b is not None for b in found)
    assert all(a <= b <= min(1.0, len(tested) * a) + 1e-12 for a, b in tested)
    assert [b for _, b in sorted(tested)] == sorted(b for _, b in tested)
    # the definition: reject in order of p while p (m - rank) <= alpha
    rejected = 0
    for rank, (a, _) in enumerate(sorted(tested)):
        if a * (len(tested) - rank) > 0.05:
            break
        rejected += 1
    assert sum(b <= 0.05 for _, b in tested) == rejected


@given(st.integers(1, 2000), st.floats(0, 1), st.floats(0.01, 0.99))
def test_a_mark_goes_by_the_test_that_the_interval_inverts(n: int, share: float, chance: float) -> None:
    found = printed_interval(100 * share, n)
    low, high = 100 * found.low, 100 * found.high
    said = verdict(low, high, 100 * chance)
    score = Score(
        value=100 * share, low=low, high=high, n=n, n_cases=n, n_effective=n, chance=100 * chance, verdict=said
    )
    p = p_against_guessing(score)
    assert p is not None and verdicts([(score, None, True)]) == [said]
    assert (p < 0.05) == (said != "no different") == (not low <= 100 * chance <= high)


def test_guessers_are_rarely_marked() -> None:
    """Of many tables of guessing models, at most some 5 % have any mark: exact chance and a drawn random run alike."""
    rng = np.random.default_rng(5)
    marked = 0
    for _ in range(200):
        scores = []
        for _ in range(12):
            n = int(rng.choice([60, 176, 500]))
            hits = int(rng.binomial(n, 0.25))
            exact = with_interval(Score(value=100 * hits / n, n=n, n_cases=n, chance=25.0), "accuracy")
            exact = exact.model_copy(update={"verdict": verdict(exact.low, exact.high, 25.0)})
            scores.append((exact, None, True))
        run = Score(value=100 * rng.binomial(500, 0.3) / 500, n=500, n_cases=500)
        scores += [(Score(value=100 * rng.binomial(500, 0.3) / 500, n=500, n_cases=500), run, True) for _ in range(12)]
        marked += any(mark in ("better", "worse") for mark in verdicts(scores))
    assert marked <= 22  # of 200; 10 expected at most, and the 99.9 % point of that


def test_what_cannot_be_tested_has_no_mark() -> None:
    assert p_against_guessing(Score(value=50.0, n=0, n_cases=0)) is None
    assert verdicts(
        [(Score(value=50.0, n=90, n_cases=90), None, True), (Score(value=None, n=9, n_cases=9), None, True)]
    ) == [None, None]


def test_the_first_sentence_is_of_the_hardest_benchmark(front: OverviewPages) -> None:
    found = front.overview()
    marks = Counter(line.cells["mediconfusion"].verdict for line in found.lines if "mediconfusion" in line.cells)
    assert found.finding is not None and found.finding.models == sum(marks.values())
    assert (found.finding.better, found.finding.worse) == (marks["better"], marks["worse"])
    assert plain(front.page({})).startswith(
        "Not yet. Of 14 models asked to tell two confusing images apart, none beats flipping a coin"
    )


def test_filters_sorting_and_pins(front: OverviewPages) -> None:
    every = matrix(front.page({"all": "1"}))
    medical = matrix(front.page({"all": "1", "kind": "medical"}))
    assert 5 < len(medical) < len(every) and set(medical) < set(every)
    order = list(matrix(front.page({"all": "1", "order": "gmai-mmbench:d"})).items())
    values = [float(cells[2][1]) for _, cells in order if cells[2][1]]
    assert values == sorted(values, reverse=True) and len(values) > 40
    assert all(not cells[2][1] for _, cells in order[len(values) :])  # what was not run stands last
    names = list(matrix(front.page({"all": "1", "order": "model:a"})))
    assert names == sorted(names, key=str.lower)
    pinned = list(matrix(front.page({"pin": "RadFM,Claude%203%20Opus", "order": "model:a"})))
    assert pinned[:2] == ["RadFM", "Claude 3 Opus"]
    assert "No model matches these filters" in front.page({"kind": "proprietary", "size": "small"})
    assert "There is no page &lt;b&gt; here" in front.page({"unknown": "<b>"})


def test_every_label_has_a_page_whose_headline_goes_by_nothing_that_the_label_gives_away(front: OverviewPages) -> None:
    """Each label of each topic: its cells are numbers of the raw tables under that very label, every aspect that is printed is shown, and
    those whose answer is the label rank no model. The same selection on the benchmark's page is ranked by another score, too."""
    raw: dict[tuple[str, str, str], set[float]] = {}
    for result in PUBLISHED:
        for facet, values in result.breakdown.items():
            for label, scores in values.items():
                for metric, score in scores.items():
                    if score.value is not None:
                        raw.setdefault((result.benchmark.family, f"{facet}:{label}", metric), set()).add(score.value)
    labels, seen = front.labels(), set()
    for topic in topics(labels).values():
        for label, _ in matching(topic, labels):
            where = f"{label.facet}:{label.value}"
            shown = front.shown(topic, labels, f"{label.family}:{where}")
            assert shown is not None
            seen.add((label.family, where))
            if shown.label != label:
                continue
            page = front.topic({"id": topic.slug, "label": f"{label.family}:{where}"})
            given = set(GIVEN_AWAY.get(label.facet, ()))
            assert {one.metric for one in shown.aspects if one.given} == given & {one.metric for one in shown.aspects}
            said = re.search(r'<h2 class="finding"[^>]*>(.*?)</h2>', page)
            assert said and not any(one.does in said[1] for one in shown.aspects if one.given), said[1]
            for one in shown.aspects:
                known = raw[label.family, where, one.metric]
                assert {row.score.value for row in one.standings.models} <= known
                assert page.count(f'data-b="{html.escape(one.does)}"') >= min(len(one.standings.models), 20)
            asked = {"format": label.family, "branches": [[f"={label.facet}", label.value]], "metric": "modality"}
            assert front.service.view(asked)["state"]["metric"].split("_")[0] not in {
                *given,
                *({"overall"} if given else ()),
            }
    assert seen == {(label.family, f"{label.facet}:{label.value}") for label in labels}


GIVEN_AWAY = {"image_type": ("modality", "organ"), "modality": ("modality",), "organ": ("organ",)}


def test_every_label_is_found(front: OverviewPages) -> None:
    labels = front.labels()
    for label in labels:
        own = {address_of("b", label.family, facet=f"{label.facet}:{label.value}")}
        own |= {address_of("topic", slug) for slug, topic in topics(labels).items() if relation(topic, label) == "same"}
        for query in {label.value, label.shown, label.shown.upper()}:
            assert own & {html.escape(hit["address"]) for hit in front.search({"query": query})}, (label, query)


def test_every_score_that_papers_print_is_found_and_shown(front: OverviewPages) -> None:
    """Also one that they print only by image type or by aspect: its hit leads to a page with its numbers."""
    for family, sections in front.service.board.snapshot.sections.items():
        section, values = sections[0], dict[str, set[str]]()
        for result in (entry.result for entry in section.entries):
            cells = [cell for held in result.breakdown.values() for cell in held.values()]
            for metric, score in (item for scores in (result.scores, *cells) for item in scores.items()):
                if not metric.startswith("share_"):
                    digits = 0 if info_of(metric, family).unit == "count" else 1
                    values.setdefault(metric, set()).add(number(score.value, digits))
        for metric, numbers in values.items():
            address = address_of("b", family, s=section.key, m=metric)
            hits = front.search({"query": info_of(metric, family).label})
            assert html.unescape(address) in {hit["address"] for hit in hits}, (family, metric)
            asked = {"format": family, "section": section.key, "metric": metric}
            view = front.service.view(asked)
            assert view["state"]["metric"] == metric and "not known for this selection" not in view["html"], metric
            page = view["html"] + front.service.breakdown(asked)
            assert set(re.findall(r">([\d.,]+)<", page)) & numbers, (family, metric)


def test_every_synonym_finds_its_topic_whose_page_has_numbers_or_says_why_not(front: OverviewPages) -> None:
    labels = front.labels()
    for slug, topic in known_topics().items():
        for word in topic.same:
            hit = front.search({"query": word})[0]
            assert (hit["name"], hit["address"]) == (topic.name, address_of("topic", slug)), word
        page = front.topic({"id": slug})
        known = any(relation(topic, label) for label in labels)
        assert ('class="matrix topic"' in page) == known and (known or "measured results will appear here" in page), (
            slug
        )


def test_a_slip_in_a_topics_name_still_finds_it(front: OverviewPages) -> None:
    """One letter left out, doubled, changed or swapped with the next, anywhere in a word of at least seven letters."""
    rng = np.random.default_rng(16)
    names = {hit["name"] for topic in known_topics().values() for hit in front.search({"query": topic.name})[:1]}
    words = [(word, name) for name in sorted(names) for word in name.split() if len(word) >= 7 and word.isalpha()]
    for word, name in words:
        at, how = int(rng.integers(len(word) - 1)), int(rng.integers(4))
        middle = ("", 2 * word[at], "q", word[at + 1] + word[at])[how]
        slipped = word[:at] + middle + word[at + (2 if how == 3 else 1) :]
        assert name in {hit["name"] for hit in front.search({"query": slipped})}, (word, slipped)


@pytest.mark.parametrize(
    "query",
    ["rheumatology", "radiology", "virology", "angiography", "neonatology", "lymphography", "mediastinoscopy"],
)
def test_another_word_with_the_same_ending_is_no_slip(front: OverviewPages, query: str) -> None:
    assert front.search({"query": query}) == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("Ophthalmology", "Ophthalmology"),
        ("opthalmology", "Ophthalmology"),
        ("Ophtalmologie", "Ophthalmology"),
        ("eye", "Ophthalmology"),
        ("ct", "CT"),
        ("CAT scan", "CT"),
        ("computed tomografy", "CT"),
        ("magnetic resonance", "MRI"),
        ("mri", "MRI"),
        ("fundus", "Fundus photography"),
        ("fundis photography", "Fundus photography"),
        ("x-ray", "X-ray"),
        ("Xray", "X-ray"),
        ("radiograph", "X-ray"),
        ("gpt-4o", "GPT-4o"),
        ("gpt 4o", "GPT-4o"),
        ("gpt 4 o", "GPT-4o"),
        ("abnormality", "Abnormality"),
        ("set accuracy", "Set accuracy"),
        ("stomach", "Gastroenterology"),
        ("LLaVA-Med", "LLaVA-Med"),
        ("med flamingo", "Med-Flamingo"),
        ("claude", "Claude 3 Opus"),
        ("lung", "Pulmonary medicine"),
        ("pulmonary", "Pulmonary medicine"),
        ("pneumology", "Pulmonary medicine"),
        ("heart", "Cardiology and cardiovascular surgery"),
        ("mediconfusion", "MediConfusion"),
        ("HALT", "HALT-MedVQA"),
        ("orthopaedics", "Orthopedics"),
        ("dermatolgy", "Dermatology"),
        ("Cerebral", "Neurosurgery and neurology"),
        ("none of the above", "Correct option removed: picks “None of the above”"),
        ("hallucination", "HALT-MedVQA"),
        ("pneumonia", "Pneumonia"),
    ],
)
def test_the_search_forgives(front: OverviewPages, query: str, first: str) -> None:
    found = front.search({"query": query})
    assert found and found[0]["name"] == first, [hit["name"] for hit in found]
    assert all(hit["where"] and hit["address"].startswith("#/") for hit in found)


@pytest.mark.parametrize("query", ["", "   ", "///", "qqqqzzzzxx", "\x00", "<script>"])
def test_a_search_for_nothing_finds_nothing(front: OverviewPages, query: str) -> None:
    assert front.search({"query": query}) == []


@given(st.text(max_size=60))
def test_any_text_can_be_searched_and_be_an_address(query: str) -> None:
    front = OverviewPages(_service())
    for hit in front.search({"query": query}):
        assert hit["name"] and hit["where"]
    page = front.topic({"id": query})
    assert "<h2" in page and "<script" not in page
    assert re.fullmatch(r"[\w-]+", slug_of(query))


_kept: list[Service] = []


def _service() -> Service:
    if not _kept:
        _kept.append(Service(Board(None, PUBLISHED)))
    return _kept[0]


def test_a_citation_names_selection_day_and_address(front: OverviewPages) -> None:
    said = front.file({"as": "cite", "kind": "medical", "link": "http://x/#/overview?kind=medical"})["text"]
    assert (
        re.search(r"urldate = \{\d{4}-\d\d-\d\d\}", said)
        and "url = {http://x/#/overview?kind=medical}" in said
        and "kind medical" in said
    )
    said = front.topic_file({"id": "ct", "as": "cite", "link": "http://x/}{"})["text"]
    assert "author={Yan" in said and said.count("{") == said.count("}")
    rows = front.topic_file({"id": "ct", "as": "csv"})
    assert rows["name"] == "medprobe-topic-ct.csv" and "abdomen_ct" in rows["text"]


def test_a_file_is_named_by_its_selection_and_an_empty_table_is_a_message(front: OverviewPages) -> None:
    asked = {"format": "gmai-mmbench", "branches": [["department", "Ophthalmology"]], "as": "csv"}
    assert front.service.export(asked)["name"] == "medprobe-gmai-mmbench-test.complete-accuracy-Ophthalmology.csv"
    with pytest.raises(BadInput, match="this table is empty"):
        front.service.export({"format": "halt-medvqa", "of": "cells", "as": "csv"})
    with pytest.raises(BadInput, match="this table is empty"):
        front.file({"kind": "proprietary", "size": "small", "as": "csv"})


def test_every_page_compares_a_score_with_the_same(front: OverviewPages) -> None:
    """Exact chance, else the paper's random run: the overview, the benchmark's page and the model's say the same, and which it is."""
    found = front.overview()
    column = next(column for column in found.columns if column.family == "gmai-mmbench")
    run = next(
        row
        for row in PUBLISHED
        if row.benchmark.split == "test"
        and row.benchmark.name == "gmai-mmbench"
        and row.model.name == "Random guessing"
    )
    assert column.drawn and column.chance == run.scores["accuracy"].value
    page = plain(front.service.view({"format": "gmai-mmbench"})["html"])
    better = {
        line.name for line in found.lines if (cell := line.cells.get("gmai-mmbench")) and cell.verdict == "better"
    }
    query = front.service.query({"format": "gmai-mmbench"})
    alone = {
        row.entry.result.model.name for row in front.service.standings(query).models if row.score.verdict == "better"
    }
    assert better <= alone and len(alone) > 30  # the overview corrects for all of its marks
    assert f"{len(alone)} of 50 models beat the paper's random run" in page
    of_model = plain(model.page(front.service.memory, front.service.claims, {"id": "GPT-4o"}))
    assert "significantly better than the paper's random run (25.9%)" in of_model
    assert "GMAI-MMBench, guessing is the paper's own random run" in plain(front.page({}))


def test_an_address_of_megabytes_draws_no_larger_page_and_is_not_kept(
    front: OverviewPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    monkeypatch.setattr("leaderboard_space.front.search", lambda query, hits: searched.append(query) or [])
    long = ",".join(f"model-{number}" for number in range(100_000))
    front.page({"pin": long, "unknown": long})
    drawn = front.page({"pin": long, "all": "9"})
    assert len(drawn) < 100 * 3 * 4000 + len(front.page({"all": "9"})) < 5 * len(long)
    assert len(front.topic({"id": long})) < 5000 and front.search({"query": long}) == []
    assert [len(query) for query in searched] == [100, 100]
    front.service.breakdown({"format": "probmed", "one": long})
    assert max(len(part) for key in front.service.memory._values for part in key if isinstance(part, str)) <= 1000
