"""Rules of the GMAI pipeline on generated data: options, labels, tags, overlays, selection."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from curation.gmai import question_templates
from curation.gmai.benchmark_files import burn_overlay
from curation.gmai.candidate_cases import Candidate, drop_near_duplicates
from curation.gmai.label_table import (
    CanonicalLabel,
    LabelTable,
    assign_labels,
    merge_tags,
    read_label_table,
)
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
    Item,
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

# Options, on generated tables

BODY_REGIONS, MODALITIES = ("chest", "abdomen", "head"), ("CT", "X-ray", "MRI")


def make_item(number, rng, dataset, patient, label, present, modality, kind="class", area=1.0, **fields):
    """Make a target on a picture of its own."""
    return Item(
        f"i{number}", dataset, f"p{number}", f"{rng.getrandbits(64):016x}", patient, True, label, kind, None, None, area,
        present, modality, **fields,
    )  # fmt: skip


def generate_cases(seed):
    """Return (cases, table, regions, modalities, seen, parents).

    All but the cases and the table are the truth, which is computed without the code under test.
    """
    rng = random.Random(seed)
    # Some names share words, since a name that contains another is related to it.
    names = [f"organ{k}" if k % 3 else f"disease{k} of type{k % 4}" for k in range(rng.randint(4, 18))]
    regions = {name: set(rng.sample(BODY_REGIONS, rng.randint(0, 2))) for name in names}
    allowed = {name: set(rng.sample(MODALITIES, rng.randint(0, 2))) for name in names}
    parents = {
        name: set(rng.sample(names[:index], min(index, rng.choice([0, 0, 0, 1])))) for index, name in enumerate(names)
    }
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
        is_multiple = granularity == IMAGE_LEVEL and len(present) > 1 and rng.random() < 0.5
        answers = tuple(sorted(present)) if is_multiple else (rng.choice(sorted(present)),)
        label_regions = [regions[n] for n in present if regions[n]]
        body = (
            # The image shows the regions that its labels have in common, or else any of them.
            frozenset(set.intersection(*label_regions) or set().union(*label_regions)) if label_regions else frozenset()
        )
        # labels that may be on the image although nothing states them
        overlapping = frozenset(n for n in present - set(answers) if rng.random() < 0.3)
        unsure = frozenset(n for n in names if n not in present and rng.random() < 0.1)
        item = make_item(k, rng, dataset, f"patient{rng.randint(0, 20)}", answers[0], tuple(present), modality)
        cases.append(
            Candidate(
                f"c{k}", answers, item, f"task{rng.randint(0, 1)}", "d", granularity, modality, present, body,
                f"{seed}-{k}", unsure, overlapping,
            )
        )  # fmt: skip
        seen |= {(dataset, modality, name) for name in present}
    return cases, table, regions, allowed, seen, parents


def ancestors_of(name, parents):
    return parents[name].union(*(ancestors_of(parent, parents) for parent in parents[name]))


def are_of_one_line(name, other_name, parents):
    """Return True if the labels are equal or one is the other's ancestor."""
    return name == other_name or name in ancestors_of(other_name, parents) or other_name in ancestors_of(name, parents)


def share_words(name, other_name):
    words, other_words = set(normalize_term(name).split()), set(normalize_term(other_name).split())
    return words <= other_words or other_words <= words


@pytest.mark.parametrize("seed", few(range(30), 15))
def test_wrong_options_follow_the_papers_rules(seed):
    """Wrong options are labels of the case's cell.

    At image level, they are labels of the same dataset that are neither on the image nor related to
    one that is. At region level, they are neither related to the answer nor overlap the target, and
    one of them is a label elsewhere on the image, if there is one.
    """
    cases, table, regions, allowed, seen, parents = generate_cases(seed)
    pools = OptionPools(cases, table)
    drawer = OptionDrawer(Sources.model_construct(options=(2, 5), seed=seed), pools, Counter())
    for case in cases:
        cell_labels = {name for c in cases if c.cell == case.cell for name in c.answers}
        if case.granularity != IMAGE_LEVEL:
            expected_wrong = {
                name
                for name in cell_labels - case.unsure
                if not any(
                    are_of_one_line(name, answer, parents) or share_words(name, answer) for answer in case.answers
                )
                and not any(are_of_one_line(name, label, parents) for label in case.overlapping)
            }
            assert set(pools.wrong_options(case)) == expected_wrong
        choice = drawer.draw(case, "test")
        if choice is None:
            continue
        assert {choice.options[position] for position in choice.right} == set(case.answers)
        assert 2 <= len(choice.options) == len(set(choice.options)) <= 5
        wrong = [name for position, name in enumerate(choice.options) if position not in choice.right]
        assert wrong and set(wrong) <= cell_labels
        for name in wrong:
            assert not any(are_of_one_line(name, label, parents) for label in {*case.answers, *wrong} - {name})
        if case.granularity != IMAGE_LEVEL:
            # Only with a label from elsewhere on the image does the question need the marking.
            assert bool(set(wrong) & case.present) == bool(expected_wrong & case.present)
            continue
        for name in wrong:
            assert name not in case.unsure
            assert not any(are_of_one_line(name, label, parents) for label in case.present)
            assert case.modality in (allowed[name] or {m for _, m, n in seen if n == name})
            if regions[name] and case.regions:
                assert regions[name] & case.regions
            else:
                assert (case.item.dataset, case.modality, name) in seen
            assert any(n == name and d == case.item.dataset for d, _, n in seen)


def test_letters_are_balanced_for_every_number_of_options():
    table = LabelTable({f"l{k}": CanonicalLabel(f"l{k}") for k in range(9)}, {})
    cases = [replace(case, answers=(f"l{k % 9}",)) for k, case in enumerate(make_mask_cases(400, 400))]
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


def test_ambiguous_words_are_mapped_only_in_fitting_regions_and_modalities():
    """Check every term and every bare word of the vocabulary in many regions and modalities."""
    table, words = read_label_table(None), defaultdict(set)
    for term in load_terms("organ", "finding"):
        for word in term.bare:
            words[normalize_term(word)].add(term)
    places = [
        parse_image_context([region.concept], modality.concept)
        for region in load_terms("region")
        for modality in load_terms("modality")
    ]
    # A sample of all combinations keeps the test fast.
    for place in places[::4]:
        for word, terms_of_word in words.items():
            expected = {
                term.concept
                for term in terms_of_word
                if applies_in_context(term, place) and not cannot_show(place, term)
            }
            assert {table.canonical_name(f"Left {word}", place)} == (expected or {None}), (
                word,
                place,
            )
    for term in load_terms("organ", "finding"):
        for place in places[::7]:
            assert table.canonical_name(term.concept, place) == (None if cannot_show(place, term) else term.concept)
    assert table.canonical_name("left bundle branch") is None and table.canonical_name("kidney (right)") == "kidney"


def test_uncertain_labels_are_mapped_only_verbatim_by_a_custom_table(tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("name,raw\npneumonia,Pneumonia?; PNA\nour sign,xx\n", encoding="utf-8")
    table = read_label_table(labels)
    assert (
        table.canonical_name("pneumonia?")
        == table.canonical_name("pna")
        == table.canonical_name("Pneumonia")
        == "pneumonia"
    )
    # A doubtful spelling in the table does not make other doubtful spellings valid.
    assert table.canonical_name("no pna") is table.canonical_name("PNA?") is table.canonical_name("xx -") is None
    assert table.labels["pneumonia"].department == "Pulmonary Medicine"


def test_vocabulary_uses_tree_values_and_no_template_words():
    table = read_label_table(None)
    questions = [
        # A template that contains a label would have to be left out for cells with that label.
        f" {normalize_term(text.format(noun='thing'))} "
        for texts in BUILTIN_TEMPLATES.values()
        for text in texts
    ]
    for name, label in table.labels.items():
        assert label.task in {*CLINICAL_TASKS, ""} and label.department in {*DEPARTMENTS, ""}, name
        assert not any(f" {word} " in question for question in questions for word in table.normalised_names(name)), name


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("name,raw\nliver,x\nspleen,x\n", "is already mapped to 'liver'"),
        ("name,parents\na1,b1\nb1,a1\n", "cycle"),
        ("name,mesh\nliver,L12\n", "not a MeSH id"),
        ("name,mesh\nliver,D008099\nhepar2,D008099\n", "MeSH id as"),
        ("name,raw\nNone,x\n", "empty cell"),
        ("name,colour\nliver,red\n", "a column 'colour'"),
    ],
)
def test_an_invalid_label_table_fails_in_one_line(tmp_path, rows, expected):
    (tmp_path / "labels.csv").write_text(rows)
    assert expected in refused(read_label_table, tmp_path / "labels.csv")


def test_tags_are_merged_by_majority_and_ties_broken_by_the_table():
    import krippendorff

    table = read_label_table(None)
    values_by_label = {
        "liver": ["Organ Recognition - Abdomen"] * 2 + ["Muscle"],
        "lung": ["Muscle", "Organ Recognition - Thorax", "Bone"],
    }
    votes = {
        (label, "task", f"t{k}"): value for label, values in values_by_label.items() for k, value in enumerate(values)
    }
    tags, counts = merge_tags(votes, table, CLINICAL_TASKS, DEPARTMENTS)
    assert tags["liver"]["task"] == "Organ Recognition - Abdomen"
    assert tags["lung"]["task"] == "Organ Recognition - Thorax"  # a three-way tie that the vocabulary's value breaks
    codes = {
        "Organ Recognition - Abdomen": 0,
        "Muscle": 1,
        "Organ Recognition - Thorax": 2,
        "Bone": 3,
    }
    # Krippendorff's package is the reference.
    data = [[codes[values_by_label[label][k]] for label in values_by_label] for k in range(3)]
    assert counts["alpha"]["task"] == pytest.approx(krippendorff.alpha(data, level_of_measurement="nominal"))
    tied = {("liver", "task", tagger): tagger for tagger in ("Bone", "Muscle", "Counting")}
    assert "a tie of Bone and Counting and Muscle" in refused(merge_tags, tied, table, CLINICAL_TASKS, DEPARTMENTS)
    # Two votes are too few to count, so their tie does not matter.
    assert merge_tags(dict(list(tied.items())[:2]), table, CLINICAL_TASKS, DEPARTMENTS)[0] == {}
    labels_by_tagger = assign_labels([f"l{k}" for k in range(40)], list("abcde"), 0)
    counted = Counter(label for labels in labels_by_tagger.values() for label in labels)
    assert set(counted.values()) == {3}
    assert max(map(len, labels_by_tagger.values())) - min(map(len, labels_by_tagger.values())) <= 1


# Overlays, questions, selection


@pytest.mark.parametrize("seed", range(20))
def test_an_overlay_never_hides_the_target(seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    mask = np.zeros((40, 50), bool)
    y, x, h, w = (int(v) for v in (*rng.integers(0, 30, 2), *rng.integers(3, 10, 2)))
    mask[y : y + h, x : x + w] = True
    overlay = Overlay(opacity=float(rng.uniform(0.1, 0.5)), width=int(rng.integers(1, 4)))
    # A box frame may cover the target only at the picture's edge.
    inside = np.zeros_like(mask)
    inside[max(y, 1) : min(y + h, 39), max(x, 1) : min(x + w, 49)] = True
    for burned, untouched in (
        (burn_overlay(pixels, CONTOUR_LEVEL, None, mask, overlay), mask),
        (burn_overlay(pixels, BOX_LEVEL, (x, y, w, h), None, overlay), inside & mask),
        (burn_overlay(pixels, MASK_LEVEL, None, mask, overlay), ~mask),
    ):
        assert (burned[untouched] == pixels[untouched]).all()
        assert (burned != pixels).any()
    # The blue channel, since the tint is red.
    tinted = burn_overlay(pixels, MASK_LEVEL, None, mask, overlay).astype(int)
    grey_after, grey_before = tinted[mask][:, 2], pixels[mask][:, 2].astype(int)
    order = np.argsort(grey_before, kind="stable")
    assert (np.diff(grey_after[order]) >= 0).all()  # monotonic: the structure remains visible
    assert np.ptp(grey_after) >= np.ptp(grey_before) * 0.45


def test_builtin_templates_pass_the_rules_and_bad_ones_fail():
    for granularity, texts in BUILTIN_TEMPLATES.items():
        for task in CLINICAL_TASKS:
            for text in texts:
                assert (
                    template_problem(
                        text.format(noun=find_task_noun(task)),
                        task,
                        granularity,
                        {"liver", "pancreas"},
                    )
                    == ""
                )
    good = "Which abdominal organ lies in the tinted area of this <modality> image?"
    task = "Organ Recognition - Abdomen"
    assert template_problem(good, task, MASK_LEVEL, {"liver"}) == ""
    for bad, rule in (
        (good.replace("organ", "liver organ"), "contains the label"),
        (good.replace("organ", "organ (livers)"), "contains the label"),
        (good.replace("<modality>", "CT"), "exactly one <modality>"),
        (good.replace("tinted ", ""), "name the granularity"),
        ("What do you see in the tinted area of this <modality> image?", "name the task"),
    ):
        assert rule in template_problem(bad, task, MASK_LEVEL, {"liver"})


def make_mask_cases(count, patients):
    rng = random.Random(count)
    cases = []
    for number in range(count):
        fields = {"kind": "mask", "area": rng.random(), "attributes": {"sex": "FM"[number % 3 == 0]}}
        patient = f"patient{number % patients}"
        item = make_item(number, rng, f"set{number % 2}", patient, "liver", ("liver",), "CT", **fields)
        present = frozenset({"liver"})
        cases.append(
            Candidate(
                f"c{number}", ("liver",), item, "t", "d", MASK_LEVEL, "CT", present, frozenset(), f"{number:03}"
            )
        )  # fmt: skip
    return cases


def test_selection_is_balanced_with_30_cases_per_answer_and_one_per_patient():
    sources = Sources.model_construct(per_answer=30, per_patient=1, even=("source", "sex"), seed=0, validation=0.2)
    cases = make_mask_cases(300, 120)
    chosen, counts = select_cases(cases, sources)
    assert len(chosen) == 30
    # One case per patient, and equally many of each combination of source and sex.
    assert max(Counter(case.item.patient for case in chosen).values()) == 1
    strata = Counter((case.item.dataset, case.item.attributes["sex"]) for case in chosen)
    assert max(strata.values()) - min(strata.values()) <= 1
    assert counts["more cases of one patient and answer"] == 180
    # Of each patient, the case with the largest target is chosen.
    largest = {}
    for case in cases:
        largest[case.item.patient] = max(largest.get(case.item.patient, 0), case.item.area)
    assert all(case.item.area == largest[case.item.patient] for case in chosen)
    splits = split_cases(chosen, sources, {})
    assert Counter(splits.values()) == {"validation": 6, "test": 24}


@pytest.mark.parametrize("seed", range(20))
def test_adding_or_removing_a_patient_keeps_the_splits_of_others(seed):
    """A test patient that moves to validation would reveal its answers."""
    rng = random.Random(seed)
    sources = Sources.model_construct(seed=seed, validation=rng.choice([0, 0.18, 0.5, 1]))
    cases = make_mask_cases(rng.randrange(4, 60), rng.randrange(2, 20))
    subset = [case for case in cases if rng.random() < 0.8]
    splits = split_cases(subset, sources, {})
    numbers = EarlierQuestions({}, {}, {}).number_cases(subset, splits)
    earlier_splits = {case.item.patient: splits[case.case] for case in subset}
    gone = rng.choice(cases).item.patient
    remaining = [case for case in cases if case.item.patient != gone]
    again = split_cases(remaining, sources, earlier_splits)
    assert all(again[case.case] == earlier_splits.get(case.item.patient, again[case.case]) for case in remaining)
    # No patient is in both splits.
    assert len({(case.item.patient, again[case.case]) for case in remaining}) == len(
        {case.item.patient for case in remaining}
    )
    indices = EarlierQuestions(numbers, {}, earlier_splits).number_cases(remaining, again)
    # Earlier questions keep their numbers, and no number is used twice.
    assert numbers.items() <= indices.items() and len(set(indices.values())) == len(indices)
    # The numbers of validation come first.
    ordered = sorted(subset, key=lambda case: numbers[case.case])
    assert [splits[case.case] for case in ordered] == sorted(splits.values(), reverse=True)


def test_farthest_first_selection_is_more_diverse_than_the_first_30():
    sources = Sources.model_construct(per_answer=30, per_patient=None, even=(), seed=0)
    cases = make_mask_cases(400, 400)

    def nearest(chosen):
        hashes = [int(case.item.phash, 16) for case in chosen]
        return min(
            (phash ^ other_phash).bit_count()
            for index, phash in enumerate(hashes)
            for other_phash in hashes[index + 1 :]
        )

    chosen, _ = select_cases(cases, sources)
    assert nearest(chosen) > nearest(cases[:30])


def test_near_duplicates_are_dropped_and_contradicting_ones_both():
    first_case, second_case, third_case = make_mask_cases(3, 3)
    duplicate = replace(second_case, item=replace(second_case.item, phash=first_case.item.phash))
    kept_cases, _ = drop_near_duplicates([first_case, duplicate, third_case], 6)
    assert kept_cases == [first_case, third_case]
    # Images of one patient are expected to look alike, so they are kept.
    own_item = replace(duplicate.item, patient=first_case.item.patient, dataset=first_case.item.dataset)
    of_one_patient = [first_case, replace(duplicate, item=own_item), third_case]
    assert drop_near_duplicates(of_one_patient, 6)[0] == of_one_patient
    # The same picture with two labels: one of them is wrong, so both are dropped.
    first_label, second_label = (
        replace(case, granularity=IMAGE_LEVEL, answers=(label,))
        for case, label in ((first_case, "liver"), (duplicate, "spleen"))
    )
    kept_cases, counts = drop_near_duplicates([first_label, second_label, third_case], 6)
    assert kept_cases == [third_case]
    assert counts["near-duplicates with different labels"] == 1


def make_questions(rng, labels, count):
    """Make questions with weighted answers and uniformly drawn wrong options."""
    written = []
    for case in make_mask_cases(count, max(2, count // 2)):
        answer = rng.choices(list(labels), list(labels.values()))[0]
        wrong_names = [name for name in labels if name != answer]
        wrong = rng.sample(wrong_names, rng.randint(1, len(wrong_names)))
        options = [answer, *wrong]
        rng.shuffle(options)
        choice = OptionSet(tuple(options), (options.index(answer),))
        written.append(WrittenQuestion(replace(case, answers=(answer,)), "q", choice, "test", len(written) + 1))
    return written


def test_blind_majority_flags_answers_in_text_but_not_chance():
    """Balanced answers are flagged in at most one of 20 sets; an answer with a share of 2/3 almost
    always.
    """
    rng = random.Random(0)
    false = sum(
        any(
            b.flagged
            for b in question_templates.blind_majority(
                make_questions(rng, dict.fromkeys("abcd", 1), rng.randint(20, 150))
            )
        )
        for _ in range(60)
    )

    # At a level of 5 %, at most 3 of 60 sets are expected.
    assert false <= 3
    branch_lists = [
        question_templates.blind_majority(make_questions(rng, {"a": 8, "b": 2, "c": 1, "d": 1}, 120)) for _ in range(12)
    ]
    assert sum(all(b.flagged for b in branches) for branches in branch_lists) >= 11
    even = make_questions(random.Random(5), dict.fromkeys("abcd", 1), 120)
    several = [
        replace(
            question,
            choice=OptionSet(
                (*question.choice.options, "z"),
                (*question.choice.right, len(question.choice.options)),
            ),
        )
        for question in even
    ]
    assert (
        not question_templates.blind_majority(even)[0].flagged and question_templates.blind_majority(several)[0].flagged
    )  # "z" is always correct
    with pytest.raises(
        BadInput,
        match=r"text alone gives answers away \(.* of 120 correct.*most frequent answer: 'a'",
    ):
        question_templates.check_text_alone(branch_lists[0], make_questions(rng, {"a": 8, "b": 2, "c": 1, "d": 1}, 120))


@pytest.mark.parametrize("seed", range(30))
def test_spaced_slices_are_evenly_apart(seed):
    rng = np.random.default_rng(seed)
    areas = np.where(rng.random(60) < rng.random(), rng.integers(1, 99, 60), 0)
    k, min_area_px = int(rng.integers(1, 7)), 5
    labelled_slices = [index for index in range(60) if areas[index] >= min_area_px]
    chosen = spaced_slices(areas, k, min_area_px)
    # At most every second slice is used, so there may be fewer than k.
    assert len(chosen) == min(k, -(-len(labelled_slices) // 2)) and set(chosen) <= set(labelled_slices)
    ranks = [labelled_slices.index(index) for index in chosen]
    assert len({b - a for a, b in pairwise(ranks)}) <= 1 and all(b - a >= 2 for a, b in pairwise(ranks))
    # The margins at both ends differ by one slice at most.
    assert not ranks or abs(ranks[0] - (len(labelled_slices) - 1 - ranks[-1])) <= 1
