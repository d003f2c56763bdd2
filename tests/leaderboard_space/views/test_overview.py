"""Test the first screen and topics: every number, mark and sentence against the raw tables, and a
search that tolerates typos.
"""

import html
import re
from operator import itemgetter
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings, strategies as st

from dataset_builders.errors import BadInput
from eval_harness.derive.metrics import HEADLINE_METRICS
from leaderboard_space.benchmarks import metric_info
from leaderboard_space.data import cache
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.topics import all_topics, matching_labels, topic_slug
from leaderboard_space.html import in_words, number
from leaderboard_space.service import Service
from leaderboard_space.views import model, overview, search, topic
from leaderboard_space.views.overview import load_overview
from leaderboard_space.views.parts import address_of
from leaderboard_space.views.search import board_labels
from tests.leaderboard_space.checks.claims import plain, rounds_to

PUBLISHED = board_results()
SHOWN_BENCHMARKS = ["gmai-mmbench", "mediconfusion", "probmed", "probmed-vqa-rad", "halt-medvqa"]
"""In column order: the benchmark with scores of most models first."""
MARKS = {"v-better": "▲", "v-same": "≈", "v-worse": "▼", "v-untested": "·"}


@pytest.fixture(scope="module")
def board(papers_board: Service) -> Board:
    return papers_board.board


def matrix(page: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """Return model -> per column (class, value, mark, what a screen reader says)."""
    cells_by_model = {}
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
        cells_by_model[html.unescape(key)] = cells
    return cells_by_model


def test_the_matrix_shows_the_papers_numbers_and_no_average(board: Board) -> None:
    page = overview.page(board, {"all": "yes"})
    drawn_cells = matrix(page)
    printed: dict[str, dict[str, list[float]]] = {}
    for result in PUBLISHED:
        if (
            result.model.kind == "baseline"
            or result.benchmark.name not in SHOWN_BENCHMARKS
            or result.benchmark.split != "test"
        ):
            continue
        score = result.scores.get(HEADLINE_METRICS[result.benchmark.name])
        if score is not None and score.value is not None:
            printed.setdefault(result.model.name, {}).setdefault(result.benchmark.name, []).append(score.value)
    assert set(drawn_cells) == set(printed) and "average" not in plain(page)
    for name, cells in drawn_cells.items():
        assert len(cells) == len(SHOWN_BENCHMARKS)
        for family, (kind, value, mark, heard) in zip(SHOWN_BENCHMARKS, cells, strict=True):
            printed_values = printed[name].get(family)
            assert (kind == "none") == (printed_values is None), (name, family)
            if printed_values is not None:
                assert any(rounds_to(value, printed_value) for printed_value in printed_values), (
                    name,
                    family,
                    value,
                    printed_values,
                )
                assert mark == MARKS[kind] and "guessing" in heard


def test_the_overview_says_what_each_benchmarks_page_says(board: Board, papers_board: Service) -> None:
    """A cell's mark is the verdict of the row that it leads to; the first sentence's counts are
    those of that page's headline.
    """
    board_overview = load_overview(board, board.snapshot)
    counts = {}
    for column in board_overview.columns:
        request = {"format": column.family, "section": column.section.key, "metric": column.metric}
        page = papers_board.view(request)["html"]
        groups = re.split(r'<tr class="group">', page)[1:]
        grouped_names = {
            html.unescape(name): re.sub("[^a-z ]", "", plain(group.split("</th>")[0]).lower())
            for group in groups
            for name in re.findall(r'class="who"[^>]*><i class="dot"></i><span>(.*?)</span>', group)
        }
        for line in board_overview.rows:
            if (rows := line.rows.get(column.family)) is None or rows[0].score.verdict is None:
                continue
            words = {"no different": "not significantly different"}
            expected_heading = words.get(rows[0].score.verdict, f"significantly {rows[0].score.verdict} than")
            assert grouped_names[line.name].startswith(expected_heading)
        counts[column.task] = plain(re.search(r'<h2 class="finding">(.*?)</h2>', page)[1])  # type: ignore[index]
    assert board_overview.finding is not None and board_overview.finding.task in plain(overview.page(board, {}))
    tail = f"; {in_words(board_overview.finding.worse)} do worse."
    assert counts[board_overview.finding.task].endswith(f"None beats {board_overview.finding.guess}{tail}")
    assert f"none beats {board_overview.finding.guess}{tail}" in plain(overview.page(board, {}))


def test_filters_sorting_and_pins(board: Board) -> None:
    every = matrix(overview.page(board, {"all": "yes"}))
    medical = matrix(overview.page(board, {"all": "yes", "kind": "medical"}))
    assert 5 < len(medical) < len(every) and set(medical) < set(every)
    order = [(-sum(bool(cell[1]) for cell in cells), -float(cells[0][1] or -1)) for cells in every.values()]
    assert order == sorted(order)  # models with scores on most benchmarks first, then by the first column
    counts = [sum(bool(cells[at][1]) for cells in every.values()) for at in range(len(SHOWN_BENCHMARKS))]
    assert counts == sorted(counts, reverse=True)
    pinned = list(matrix(overview.page(board, {"pin": ["RadFM", "Claude 3 Opus"]})))
    assert set(pinned[:2]) == {"RadFM", "Claude 3 Opus"} and len(pinned) == 20
    assert len(matrix(overview.page(board, {"hide": ["probmed", "halt-medvqa"]}))["GPT-4o"]) == 3
    assert "No model matches this filter" in overview.page(board, {"kind": "none"})
    assert "There is no page &lt;b&gt; here" in overview.page(board, {"unknown": "<b>"})
    page = topic.page(board, {"id": "opthalmology"})
    assert "No benchmark here has a topic" in page and "Ophthalmology" in page


def test_every_label_has_a_page_whose_headline_goes_by_nothing_that_the_label_gives_away(
    board: Board, papers_board: Service
) -> None:
    """For each label of each topic: its cells are numbers of the raw tables under that label, every
    printed aspect is shown, and aspects whose answer is the label itself rank no model. On the
    benchmark's page, the same selection is ranked by another score, too.
    """
    raw: dict[tuple[str, str, str], set[float]] = {}
    for result in PUBLISHED:
        for facet, values in result.breakdown.items():
            for label, scores in values.items():
                for metric, score in scores.items():
                    if score.value is not None:
                        raw.setdefault((result.benchmark.family, f"{facet}:{label}", metric), set()).add(score.value)
    labels, seen = board_labels(board, board.snapshot), set()
    for label_topic in all_topics(labels).values():
        for label, _ in matching_labels(label_topic, labels):
            label_key = f"{label.facet}:{label.value}"
            summary = topic.label_summary(board, label_topic, f"{label.family}:{label_key}")
            assert summary is not None
            seen.add((label.family, label_key))
            if summary.label != label:
                continue
            page = topic.page(board, {"id": label_topic.slug, "label": f"{label.family}:{label_key}"})
            given_away = set(GIVEN_AWAY.get(label.facet, ()))
            assert {aspect.metric for aspect in summary.aspects if aspect.given} == given_away & {
                aspect.metric for aspect in summary.aspects
            }
            finding = re.search(r'<h2 class="finding"[^>]*>(.*?)</h2>', page)
            assert finding and not any(aspect.does in finding[1] for aspect in summary.aspects if aspect.given), (
                finding[1]
            )
            for aspect in summary.aspects:
                raw_scores = raw[label.family, label_key, aspect.metric]
                assert {row.score.value for row in aspect.standings.models} <= raw_scores
                assert page.count(f'data-b="{html.escape(aspect.does)}"') >= min(len(aspect.standings.models), 20)
            request = {"format": label.family, "branches": [[label.facet, label.value]], "metric": "modality"}
            assert papers_board.view(request)["state"]["metric"].split("_")[0] not in given_away
    assert seen == {(label.family, f"{label.facet}:{label.value}") for label in labels}
    assert "No such label: " in topic.page(board, {"id": "fundus-photography"})  # the reason why there is no more


ABDOMEN_CT = "probmed:image_type:abdomen_ct"
GIVEN_AWAY = {"image_type": ("modality", "organ"), "modality": ("modality",), "organ": ("organ",)}


def test_every_score_that_papers_print_is_found_and_shown(board: Board, papers_board: Service) -> None:
    """This includes a label that a paper prints only by image type or by aspect: its match leads to
    a page with its numbers.
    """
    for family, (section, *_) in filter(itemgetter(1), board.snapshot.sections.items()):
        values: dict[str, set[str]] = {}
        for result in (entry.result for entry in section.entries):
            cells = [cell for facet_cells in result.breakdown.values() for cell in facet_cells.values()]
            for metric, score in (item for scores in (result.scores, *cells) for item in scores.items()):
                if not metric.startswith("share_"):
                    digits = 0 if metric_info(metric, family).unit == "count" else 1
                    values.setdefault(metric, set()).add(number(score.value, digits))
        for metric, numbers in list(values.items())[::3]:
            address = address_of("b", family, s=section.key, m=metric)
            hits = search.answer(board, {"query": metric_info(metric, family).label})
            assert html.unescape(address) in {hit["address"] for hit in hits}, (family, metric)
            request = {"format": family, "section": section.key, "metric": metric}
            view = papers_board.view(request)
            assert view["state"]["metric"] == metric and "not known for this selection" not in view["html"], metric
            page = view["html"] + papers_board.breakdown(request)
            assert set(re.findall(r">([\d.,]+)<", page)) & numbers, (family, metric)


def test_a_finding_that_no_benchmark_labels_is_named_where_its_department_stands(board: Board) -> None:
    hit = search.answer(board, {"query": "pneumonia"})[0]
    parameters = parse_qs(hit["address"].partition("?")[2])
    page = topic.page(board, {"id": "pulmonary-medicine", "term": parameters["term"][0]})
    assert "No benchmark labels pneumonia by itself. Pulmonary" in page
    assert "No benchmark labels" not in topic.page(board, {"id": "pulmonary-medicine", "term": "<b>no such finding"})


FORGIVEN = {
    "opthalmology": "Ophthalmology", "Ophtalmologie": "Ophthalmology", "eye": "Ophthalmology", "ct": "CT", "CAT scan": "CT",
    "computed tomografy": "CT", "fundis photography": "Fundus photography", "Xray": "X-ray", "gpt 4 o": "GPT-4o",
    "set accuracy": "Set accuracy", "stomach": "Gastroenterology", "med flamingo": "Med-Flamingo", "claude": "Claude 3 Opus",
    "lung": "Pulmonary medicine", "HALT": "HALT-MedVQA", "hallucination": "HALT-MedVQA", "pneumonia": "Pneumonia",
    "Cerebral": "Neurosurgery and neurology", "none of the above": "Correct option removed: picks “None of the above”",
}  # fmt: skip


def test_the_search_forgives_slips_and_finds_nothing_for_other_words(board: Board) -> None:
    for query, top_hit in FORGIVEN.items():
        hits = search.answer(board, {"query": query})
        assert hits and hits[0]["name"] == top_hit, (query, [hit["name"] for hit in hits])
        assert all(hit["where"] and hit["address"].startswith("#/") for hit in hits)
    for query in ("", "///", "qqqqzzzzxx", "\x00", "<script>", "rheumatology", "virology", "lymphography"):
        assert search.answer(board, {"query": query}) == [], query


@given(st.text(max_size=60))
@settings(max_examples=15)
def test_any_text_can_be_searched_and_be_an_address(board: Board, query: str) -> None:
    for hit in search.answer(board, {"query": query}):
        assert hit["name"] and hit["where"]
    page = topic.page(board, {"id": query})
    assert "<h2" in page and "<script" not in page
    assert re.fullmatch(r"[\w-]+", topic_slug(query))


def test_a_citation_names_selection_day_and_address(board: Board) -> None:
    citation = topic.file(board, {"id": "ct", "label": ABDOMEN_CT, "as": "cite", "link": "http://x/}{"})["text"]
    assert "author={Yan" in citation and citation.count("{") == citation.count("}")
    rows = topic.file(board, {"id": "ct", "label": ABDOMEN_CT, "as": "csv"})
    assert rows["name"] == "medprobe-topic-ct.csv" and "abdomen_ct" in rows["text"]


def test_a_file_is_named_by_its_selection_and_an_empty_table_is_a_message(board: Board, papers_board: Service) -> None:
    request = {"format": "gmai-mmbench", "branches": [["department", "Ophthalmology"]], "as": "csv"}
    assert (
        papers_board.export(request)["name"]
        == "medprobe-gmai-mmbench-test.complete-accuracy-department-Ophthalmology.csv"
    )
    with pytest.raises(BadInput, match="this table is empty"):
        papers_board.export({"format": "halt-medvqa", "of": "aspects", "as": "csv"})
    with pytest.raises(BadInput, match="this table is empty"):
        overview.file(board, {"kind": "none", "as": "csv"})


def test_every_page_compares_a_score_with_the_same(board: Board, papers_board: Service) -> None:
    """Exact chance, else the paper's random run: the overview, the benchmark's page and the model's
    page state which it is.
    """
    column = next(column for column in load_overview(board, board.snapshot).columns if column.family == "gmai-mmbench")
    assert column.is_random_run and column.chance == pytest.approx(25.9, abs=0.05)
    assert "of 50 models beat the paper's random run" in plain(papers_board.view({"format": "gmai-mmbench"})["html"])
    of_model = plain(model.page(board, {"id": "GPT-4o"}))
    assert "significantly better than the paper's random run (25.9%)" in of_model
    assert "GMAI-MMBench and ProbMed, guessing is the paper's own random run" in plain(overview.page(board, {}))


def test_an_address_of_megabytes_draws_no_larger_page_and_is_not_kept(board: Board, papers_board: Service) -> None:
    long = ",".join(f"model-{number}" for number in range(100_000))
    assert len(overview.page(board, {"pin": long, "unknown": long})) < len(overview.page(board, {})) + 1000
    assert len(topic.page(board, {"id": long})) < 5000 and search.answer(board, {"query": long}) == []
    papers_board.breakdown({"format": "probmed", "one": long})
    assert max(len(part) for key in cache._results for part in key if isinstance(part, str)) <= 1000
