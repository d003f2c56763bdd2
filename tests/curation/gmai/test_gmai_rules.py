"""The rules of the GMAI pipeline over generated tables and cases: options, letters, labels, taggers, overlays, words, selection."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from curation.gmai import question_templates
from curation.gmai.candidate_cases import Candidate, drop_near_duplicates
from curation.gmai.items import Item
from curation.gmai.label_table import CanonicalLabel, LabelTable, assign_labels, merge_tags, read_label_table
from curation.gmai.overlay import burn_overlay
from curation.gmai.question_templates import BUILTIN_TEMPLATES, template_problem
from curation.gmai.selecting import (
    EarlierQuestions,
    OptionDrawer,
    OptionPools,
    OptionSet,
    WrittenQuestion,
    select_cases,
    split_cases,
)
from curation.gmai.sources import (
    BOX_LEVEL,
    CLINICAL_TASKS,
    CONTOUR_LEVEL,
    DEPARTMENTS,
    GRANULARITIES,
    IMAGE_LEVEL,
    MASK_LEVEL,
    Overlay,
    Sources,
)
from curation.readers.volumes import spaced_slices
from dataset_builders.errors import BadInput
from dataset_builders.terms import (
    applies_in_context,
    cannot_show,
    find_task_noun,
    load_terms,
    normalize_term,
    parse_image_context,
)
from tests.helpers import refused
from tests.sampling import few

# Options, over generated tables

REGIONS, MODALITIES = ("chest", "abdomen", "head"), ("CT", "X-ray", "MRI")


def generated(seed):
    """A label table and cases whose truth is kept apart: (cases, table, regions, modalities, seen, family)."""
    rng = random.Random(seed)
    names = [f"organ{k}" if k % 3 else f"disease{k} of type{k % 4}" for k in range(rng.randint(4, 18))]
    regions = {name: set(rng.sample(REGIONS, rng.randint(0, 2))) for name in names}
    allowed = {name: set(rng.sample(MODALITIES, rng.randint(0, 2))) for name in names}
    parents = {name: set(rng.sample(names[:at], min(at, rng.choice([0, 0, 0, 1])))) for at, name in enumerate(names)}
    labels = {n: CanonicalLabel(n, parents=parents[n], regions=regions[n], modalities=allowed[n]) for n in names}
    table = LabelTable(labels, {normalize_term(n): n for n in names})
    seen, cases = set(), []
    for k in range(rng.randint(5, 40)):
        dataset, modality = f"set{rng.randint(0, 2)}", rng.choice(MODALITIES)
        fitting = [n for n in names if not allowed[n] or modality in allowed[n]]
        if not fitting:
            continue
        present = frozenset(rng.sample(fitting, min(len(fitting), rng.randint(1, 3))))
        granularity = rng.choice(GRANULARITIES)
        several = granularity == IMAGE_LEVEL and len(present) > 1 and rng.random() < 0.5
        answers = tuple(sorted(present)) if several else (rng.choice(sorted(present)),)
        known = [regions[n] for n in present if regions[n]]
        body = frozenset(set.intersection(*known) or set().union(*known)) if known else frozenset()
        item = Item(f"i{k}", dataset, f"p{k}", f"{rng.getrandbits(64):016x}", f"patient{rng.randint(0, 20)}", True,
                    answers[0], "class", None, None, 1.0, tuple(present), modality)  # fmt: skip
        task = f"task{rng.randint(0, 1)}"
        over = frozenset(n for n in present - set(answers) if rng.random() < 0.3)
        unsure = frozenset(n for n in names if n not in present and rng.random() < 0.1)
        cases.append(
            Candidate(
                f"c{k}", answers, item, task, "d", granularity, modality, present, body, f"{seed}-{k}", unsure, over
            )
        )
        seen |= {(dataset, modality, name) for name in present}
    return cases, table, regions, allowed, seen, parents


def family(name, parents):
    above = set(parents[name])
    for parent in parents[name]:
        above |= family(parent, parents)
    return above


def nested(one, other, parents):
    words, others = set(normalize_term(one).split()), set(normalize_term(other).split())
    return (
        one == other
        or one in family(other, parents)
        or other in family(one, parents)
        or words <= others
        or others <= words
    )


@pytest.mark.parametrize("seed", few(range(30), 15))
def test_options_are_what_the_paper_offers(seed):
    """Image level: labels of the same set that are not on the image, nor related to one that is. Region level: all of the cell but the
    answer's family and what lies where the target lies; labels elsewhere on the image stay, and one of them is always among the options."""
    cases, table, regions, allowed, seen, parents = generated(seed)
    pools = OptionPools(cases, table)
    drawer = OptionDrawer(Sources.model_construct(options=(2, 5), seed=seed), pools, Counter())
    for case in cases:
        of_cell = {name for c in cases if c.cell == case.cell for name in c.answers}
        if case.granularity != IMAGE_LEVEL:
            away = {
                name for name in of_cell - set(case.unsure)
                if not any(nested(name, answer, parents) for answer in case.answers)
                and not any(name == o or name in family(o, parents) or o in family(name, parents) for o in case.overlapping)
            }  # fmt: skip
            assert set(pools.wrong_options(case)) == away
        choice = drawer.draw(case, "test")
        if choice is None:
            continue
        assert {choice.options[at] for at in choice.right} == set(case.answers)
        assert 2 <= len(choice.options) == len(set(choice.options)) <= 5
        wrong = [name for at, name in enumerate(choice.options) if at not in choice.right]
        assert wrong and set(wrong) <= of_cell
        for name in wrong:
            assert not any(
                name in family(o, parents) or o in family(name, parents) for o in {*case.answers, *wrong} - {name}
            )
        if case.granularity != IMAGE_LEVEL:
            assert bool(set(wrong) & case.present) == bool(away & case.present)
            continue
        for name in wrong:
            assert name not in case.present | case.unsure
            assert not any(name in family(o, parents) or o in family(name, parents) for o in case.present)
            assert case.modality in (allowed[name] or {m for _, m, n in seen if n == name})
            if regions[name] and case.regions:
                assert regions[name] & case.regions
            else:
                assert (case.item.dataset, case.modality, name) in seen
            assert any(n == name and d == case.item.dataset for d, _, n in seen)


def test_letters_are_balanced_for_every_number_of_options():
    table = LabelTable({f"l{k}": CanonicalLabel(f"l{k}") for k in range(9)}, {})
    cases = [replace(case, answers=(f"l{k % 9}",)) for k, case in enumerate(cases_of(400, 400))]
    drawer = OptionDrawer(Sources.model_construct(options=(2, 5), seed=0), OptionPools(cases, table), Counter())
    letters = defaultdict(Counter)
    for case in cases:
        choice = drawer.draw(case, "test")
        letters[len(choice.options)][choice.right[0]] += 1
    assert set(letters) == {2, 3, 4, 5}
    for size, counts in letters.items():
        assert set(counts) == set(range(size))
        assert max(counts.values()) - min(counts.values()) <= 1


# Labels and tags


def test_a_word_names_a_thing_only_where_region_and_modality_can_mean_it():
    """Every concept and every bare word of the vocabulary at every place: "left ventricle" of a brain is none of the heart."""
    table, words = read_label_table(None), defaultdict(set)
    for term in load_terms("organ", "finding"):
        for word in term.bare:
            words[normalize_term(word)].add(term)
    places = [
        parse_image_context([region.concept], modality.concept)
        for region in load_terms("region")
        for modality in load_terms("modality")
    ]
    for place in places[::4]:
        for word, held in words.items():
            meant = {term.concept for term in held if applies_in_context(term, place) and not cannot_show(place, term)}
            assert {table.canonical_name(f"Left {word}", place)} == (meant or {None}), (word, place)
    for term in load_terms("organ", "finding"):
        for place in places[::7]:
            assert table.canonical_name(term.concept, place) == (None if cannot_show(place, term) else term.concept)
    assert table.canonical_name("left bundle branch") is None and table.canonical_name("kidney (right)") == "kidney"


def test_a_label_that_is_no_plain_finding_is_mapped_only_by_a_table_that_has_it_as_it_is_written(tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("name,raw\npneumonia,Pneumonia?; PNA\nour sign,xx\n", encoding="utf-8")
    table = read_label_table(labels)
    assert (
        table.canonical_name("pneumonia?")
        == table.canonical_name("pna")
        == table.canonical_name("Pneumonia")
        == "pneumonia"
    )
    assert table.canonical_name("no pna") is table.canonical_name("PNA?") is table.canonical_name("xx -") is None
    assert table.labels["pneumonia"].department == "Pulmonary Medicine"


def test_the_vocabulary_has_the_trees_values_and_no_word_of_our_templates():
    table = read_label_table(None)
    questions = [
        f" {normalize_term(text.format(noun='thing'))} " for texts in BUILTIN_TEMPLATES.values() for text in texts
    ]
    for name, label in table.labels.items():
        assert label.task in {*CLINICAL_TASKS, ""} and label.department in {*DEPARTMENTS, ""}, name
        assert not any(f" {word} " in question for question in questions for word in table.normalised_names(name)), name


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("name,raw\nliver,x\nspleen,x\n", "is already mapped to 'liver'"),
        ("name,parents\na1,b1\nb1,a1\n", "cycle"),
        ("name,mesh\nliver,L12\n", "not a MeSH id"),
        ("name,mesh\nliver,D008099\nhepar2,D008099\n", "MeSH id as"),
        ("name,raw\nNone,x\n", "empty cell"),
        ("name,colour\nliver,red\n", "a column 'colour'"),
    ],
)
def test_a_wrong_label_table_is_one_line(tmp_path, rows, said):
    (tmp_path / "labels.csv").write_text(rows)
    assert said in refused(read_label_table, tmp_path / "labels.csv")


def test_taggers_are_merged_by_majority_and_ties_settled_by_the_table():
    import krippendorff

    table = read_label_table(None)
    said = {
        "liver": ["Organ Recognition - Abdomen"] * 2 + ["Muscle"],
        "lung": ["Muscle", "Organ Recognition - Thorax", "Bone"],
    }
    votes = {(label, "task", f"t{k}"): value for label, values in said.items() for k, value in enumerate(values)}
    tags = merge_tags(votes, table, CLINICAL_TASKS, DEPARTMENTS)
    assert tags.values["liver"]["task"] == "Organ Recognition - Abdomen"
    assert (
        tags.values["lung"]["task"] == "Organ Recognition - Thorax"
    )  # a tie of three: the vocabulary's value is one of them
    codes = {"Organ Recognition - Abdomen": 0, "Muscle": 1, "Organ Recognition - Thorax": 2, "Bone": 3}
    data = [[codes[said[label][k]] for label in said] for k in range(3)]
    assert tags.agreement["task"] == pytest.approx(krippendorff.alpha(data, level_of_measurement="nominal"))
    tied = {("liver", "task", tagger): tagger for tagger in ("Bone", "Muscle", "Counting")}
    assert "a tie of Bone and Counting and Muscle" in refused(merge_tags, tied, table, CLINICAL_TASKS, DEPARTMENTS)
    assert merge_tags(dict(list(tied.items())[:2]), table, CLINICAL_TASKS, DEPARTMENTS).values == {}
    shares = assign_labels([f"l{k}" for k in range(40)], list("abcde"), 0)
    counted = Counter(label for own in shares.values() for label in own)
    assert set(counted.values()) == {3}
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1


# Overlays, questions, selection


@pytest.mark.parametrize("seed", range(20))
def test_an_overlay_never_hides_the_target(seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    mask = np.zeros((40, 50), bool)
    y, x, h, w = (int(v) for v in (*rng.integers(0, 30, 2), *rng.integers(3, 10, 2)))
    mask[y : y + h, x : x + w] = True
    overlay = Overlay(opacity=float(rng.uniform(0.1, 0.5)), width=int(rng.integers(1, 4)))
    inside = np.zeros_like(mask)
    inside[max(y, 1) : min(y + h, 39), max(x, 1) : min(x + w, 49)] = True
    for burned, untouched in (
        (burn_overlay(pixels, CONTOUR_LEVEL, None, mask, overlay), mask),
        (burn_overlay(pixels, BOX_LEVEL, (x, y, w, h), None, overlay), inside & mask),
        (burn_overlay(pixels, MASK_LEVEL, None, mask, overlay), ~mask),
    ):
        assert (burned[untouched] == pixels[untouched]).all()
        assert (burned != pixels).any()
    tinted = burn_overlay(pixels, MASK_LEVEL, None, mask, overlay).astype(int)
    grey, before = tinted[mask][:, 2], pixels[mask][:, 2].astype(int)
    order = np.argsort(before, kind="stable")
    assert (np.diff(grey[order]) >= 0).all()  # what is brighter stays brighter: the structure shows through
    assert np.ptp(grey) >= np.ptp(before) * 0.45


def test_our_templates_keep_the_rules_and_the_rules_find_what_breaks_them():
    for granularity, texts in BUILTIN_TEMPLATES.items():
        for task in CLINICAL_TASKS:
            for text in texts:
                assert (
                    template_problem(text.format(noun=find_task_noun(task)), task, granularity, {"liver", "pancreas"})
                    == ""
                )
    good = "Which abdominal organ lies in the tinted area of this <modality> image?"
    task = "Organ Recognition - Abdomen"
    assert template_problem(good, task, MASK_LEVEL, {"liver"}) == ""
    assert template_problem(good.replace("organ", "liver organ"), task, MASK_LEVEL, {"liver"})
    assert template_problem(good.replace("organ", "organ (livers)"), task, MASK_LEVEL, {"liver"})
    assert template_problem(good.replace("<modality>", "CT"), task, MASK_LEVEL, set())
    assert template_problem(good.replace("tinted ", ""), task, MASK_LEVEL, set())
    assert template_problem("What do you see in the tinted area of this <modality> image?", task, MASK_LEVEL, set())


def cases_of(count, patients):
    rng = random.Random(count)
    made = []
    for k in range(count):
        item = Item(f"i{k}", f"set{k % 2}", f"p{k}", f"{rng.getrandbits(64):016x}", f"patient{k % patients}", True, "liver", "mask",
                    None, None, rng.random(), ("liver",), "CT", attributes={"sex": "FM"[k % 3 == 0]})  # fmt: skip
        there = frozenset({"liver"})
        made.append(Candidate(f"c{k}", ("liver",), item, "t", "d", MASK_LEVEL, "CT", there, frozenset(), f"{k:03}"))
    return made


def test_selection_keeps_30_per_answer_one_per_patient_and_is_even():
    sources = Sources.model_construct(per_answer=30, per_patient=1, even=("source", "sex"), seed=0, validation=0.2)
    cases = cases_of(300, 120)
    chosen, counts = select_cases(cases, sources)
    assert len(chosen) == 30
    assert max(Counter(case.item.patient for case in chosen).values()) == 1
    strata = Counter((case.item.dataset, case.item.attributes["sex"]) for case in chosen)
    assert max(strata.values()) - min(strata.values()) <= 1
    assert counts["more cases of one patient and answer"] == 180
    largest = {}
    for case in cases:
        largest[case.item.patient] = max(largest.get(case.item.patient, 0), case.item.area)
    assert all(case.item.area == largest[case.item.patient] for case in chosen)
    splits = split_cases(chosen, sources)
    assert Counter(splits.values()) == {"validation": 6, "test": 24}


@pytest.mark.parametrize("seed", range(20))
def test_a_patient_less_or_more_moves_no_other_to_the_other_split(seed):
    """A test patient that moved would have its hidden answers shown, and a validation patient has shown them already."""
    rng = random.Random(seed)
    sources = Sources.model_construct(seed=seed, validation=rng.choice([0, 0.18, 0.5, 1]))
    cases = cases_of(rng.randrange(4, 60), rng.randrange(2, 20))
    some = [case for case in cases if rng.random() < 0.8]
    splits = split_cases(some, sources)
    numbers = EarlierQuestions({}, {}, {}).number_cases(some, splits)
    known = {case.item.patient: splits[case.case] for case in some}
    gone = rng.choice(cases).item.patient
    left = [case for case in cases if case.item.patient != gone]
    again = split_cases(left, sources, known)
    assert all(again[case.case] == known.get(case.item.patient, again[case.case]) for case in left)
    assert len({(case.item.patient, again[case.case]) for case in left}) == len({case.item.patient for case in left})
    indices = EarlierQuestions(numbers, {}, known).number_cases(left, again)
    assert numbers.items() <= indices.items() and len(set(indices.values())) == len(indices)
    ordered = sorted(some, key=lambda case: numbers[case.case])
    assert [splits[case.case] for case in ordered] == sorted(splits.values(), reverse=True)


def test_far_apart_is_farther_than_the_first_30():
    sources = Sources.model_construct(per_answer=30, per_patient=None, even=(), seed=0)
    cases = cases_of(400, 400)

    def nearest(some):
        hashes = [int(case.item.phash, 16) for case in some]
        return min((one ^ other).bit_count() for at, one in enumerate(hashes) for other in hashes[at + 1 :])

    chosen, _ = select_cases(cases, sources)
    assert nearest(chosen) > nearest(cases[:30])


def test_near_duplicates_of_other_patients_go_and_contradicting_ones_both():
    one, two, three = cases_of(3, 3)
    same = replace(two, item=replace(two.item, phash=one.item.phash))
    kept, _ = drop_near_duplicates([one, same, three], 6)
    assert kept == [one, three]
    same_patient = replace(same, item=replace(same.item, patient=one.item.patient, dataset=one.item.dataset))
    assert drop_near_duplicates([one, same_patient, three], 6)[0] == [one, same_patient, three]
    whole = [replace(one, granularity=IMAGE_LEVEL), replace(same, granularity=IMAGE_LEVEL, answers=("spleen",)), three]
    kept, counts = drop_near_duplicates(whole, 6)
    assert kept == [three]
    assert counts["near-duplicates with different labels"] == 1


def answered(rng, labels, count):
    """Questions whose answers are drawn with the labels' weights, and whose wrong options from the other labels alike."""
    written = []
    for case in cases_of(count, max(2, count // 2)):
        answer = rng.choices(list(labels), list(labels.values()))[0]
        others = [name for name in labels if name != answer]
        wrong = rng.sample(others, rng.randint(1, len(others)))
        options = [answer, *wrong]
        rng.shuffle(options)
        choice = OptionSet(tuple(options), (options.index(answer),))
        written.append(WrittenQuestion(replace(case, answers=(answer,)), "q", choice, "test", len(written) + 1))
    return written


def test_what_the_text_gives_away_is_found_and_chance_is_not():
    """Over generated sets: even answers are flagged once in twenty or less often, one that is right in two of three nearly always."""
    rng = random.Random(0)
    false = sum(
        any(
            b.flagged
            for b in question_templates.blind_majority(answered(rng, dict.fromkeys("abcd", 1), rng.randint(20, 150)))
        )
        for _ in range(60)
    )
    assert false <= 3
    found = [question_templates.blind_majority(answered(rng, {"a": 8, "b": 2, "c": 1, "d": 1}, 120)) for _ in range(12)]
    assert sum(all(b.flagged for b in branches) for branches in found) >= 11
    even = answered(random.Random(5), dict.fromkeys("abcd", 1), 120)
    several = [
        replace(each, choice=OptionSet((*each.choice.options, "z"), (*each.choice.right, len(each.choice.options))))
        for each in even
    ]
    assert (
        not question_templates.blind_majority(even)[0].flagged and question_templates.blind_majority(several)[0].flagged
    )  # "z" is always right
    with pytest.raises(BadInput, match=r"text alone gives answers away \(.* of 120 correct.*most frequent answer: 'a'"):
        question_templates.check_text_alone(found[0], answered(rng, {"a": 8, "b": 2, "c": 1, "d": 1}, 120))


@pytest.mark.parametrize("seed", range(30))
def test_slices_that_are_asked_together_lie_apart(seed):
    rng = np.random.default_rng(seed)
    areas = np.where(rng.random(60) < rng.random(), rng.integers(1, 99, 60), 0)
    k, least = int(rng.integers(1, 7)), 5
    marked = [at for at in range(60) if areas[at] >= least]
    chosen = spaced_slices(areas, k, least)
    assert len(chosen) == min(k, -(-len(marked) // 2)) and set(chosen) <= set(marked)
    ranks = [marked.index(at) for at in chosen]
    assert len({b - a for a, b in pairwise(ranks)}) <= 1 and all(b - a >= 2 for a, b in pairwise(ranks))
    assert not ranks or abs(ranks[0] - (len(marked) - 1 - ranks[-1])) <= 1
