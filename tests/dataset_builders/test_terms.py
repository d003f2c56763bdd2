"""Check that terms.csv is consistent, and that negated, uncertain, past or signed labels are never
read as plain findings.
"""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dataset_builders.label_reading import label_key, parse_label
from dataset_builders.terms import (
    ANY_REGION,
    ImageContext,
    ancestors,
    applies_in_context,
    cannot_show,
    find_ct_window,
    find_modalities,
    find_regions,
    load_terms,
    modalities_disjoint,
    mutually_exclusive,
    normalize_term,
    parse_image_context,
    regions_disjoint,
    regions_overlap,
    terms_by_name,
)

LABEL_TERMS = load_terms("organ", "finding")
FINDING_NAMES = sorted({term.concept for term in load_terms("finding")})
CONTEXTS = [
    ImageContext(frozenset({region}), frozenset({modality}))
    for region in terms_by_name("region").keys() & {normalize_term(r.concept) for r in load_terms("region")}
    for modality in (m.concept for m in load_terms("modality"))
]


def test_references_in_the_table_exist():
    regions = {term.concept for term in load_terms("region")}
    modalities = {term.concept for term in load_terms("modality")}
    for kind in ("region", "organ", "finding", "modality"):
        # Concepts are unique within a kind, and all references resolve.
        names = {term.concept for term in load_terms(kind)}
        assert len(names) == len(load_terms(kind)), kind
        for term in load_terms(kind):
            assert set(term.parents) <= names, term
            assert set(term.regions) <= regions | {ANY_REGION}, term
            assert set(term.modalities) <= modalities, term
            assert set(term.excludes) <= names, term
            assert set(term.needs) <= regions | modalities, term

            # A bare word such as "mass" is only allowed in the contexts that `needs` lists.
            assert bool(term.bare) == bool(term.needs), term
            assert term.regions or kind in ("region", "modality"), term
            assert len(set(term.names)) == len((term.concept, *term.synonyms)), term

    for term in load_terms("region"):
        assert set(term.related) <= regions | {ANY_REGION}, term

    for term in load_terms("modality", "region"):
        assert not term.bare


@pytest.mark.parametrize("kind", ["region", "organ", "finding", "modality"])
def test_hierarchy_has_no_cycles(kind):
    for term in load_terms(kind):
        assert term.concept not in ancestors(kind, term.concept), term


def test_child_is_within_its_parents_region():
    for kind in ("organ", "finding"):
        for term in load_terms(kind):
            for name in term.parents:
                parent = terms_by_name(kind)[normalize_term(name)]
                assert ANY_REGION in parent.regions or all(
                    any(region == above or above in ancestors("region", region) for above in parent.regions)
                    for region in term.regions
                ), (term.concept, name)


def test_synonyms_are_unambiguous():
    for kinds in (("region",), ("organ", "finding"), ("modality",), ("department",), ("task",)):
        pairs = [(name, term.concept) for term in load_terms(*kinds) for name in term.names]
        twice = {name for name, _ in pairs if len({concept for other_name, concept in pairs if other_name == name}) > 1}
        assert not twice, kinds


def test_bare_words_are_unambiguous_in_context():
    names = {name for term in LABEL_TERMS for name in term.names}
    words = {normalize_term(word) for term in LABEL_TERMS for word in term.bare}

    # A bare word that was also a name would be read without its context.
    assert not words & names
    for word in words:
        claiming = [term for term in LABEL_TERMS if word in map(normalize_term, term.bare)]
        for place in CONTEXTS:
            assert sum(applies_in_context(term, place) for term in claiming) <= 1, (word, place)
        for term in claiming:  # required regions must be possible for the concept
            regions = [need for need in term.needs if normalize_term(need) in terms_by_name("region")]
            assert regions
            assert all(regions_overlap([region], term.regions) for region in regions), term


def test_exclusions_never_relate_kind_and_subkind():
    for term in load_terms("finding"):
        assert not set(term.excludes) & {term.concept, *ancestors("finding", term.concept)}

    for finding, other_finding in itertools.combinations(FINDING_NAMES, 2):
        if mutually_exclusive(finding, other_finding):
            assert not {finding, other_finding} & (ancestors("finding", finding) | ancestors("finding", other_finding))
            assert not ancestors("finding", finding) & {other_finding}

    for finding, other_finding in (
        ("crazy paving pattern", "ground-glass opacity"), ("deep sulcus sign", "pneumothorax"), ("staghorn calculus", "kidney stone"),
        ("pneumonia", "atelectasis"), ("cardiomegaly", "pleural effusion"),
    ):  # fmt: skip
        assert not mutually_exclusive(finding, other_finding)

    assert mutually_exclusive("cardiomegaly", "small heart")
    assert mutually_exclusive("small heart", "cardiomegaly")


def test_ids_state_their_vocabulary():
    for term in load_terms():
        assert not (term.mesh or term.radlex) or (term.vocabulary and not Path(term.vocabulary).is_absolute()), term


def test_names_are_parsed_as_their_concept():
    for term in LABEL_TERMS:
        for name in (term.concept, *term.synonyms):
            # Spelling variants that sources use.
            for written in (
                name,
                name.upper(),
                name.title(),
                name.replace(" ", "_"),
                f" {name} ",
                f"{name}.",
            ):
                label = parse_label(written)
                assert (label.term, label.problem) == (term, ""), written


PREFIX_PATTERNS = (
    "no {}", "No {}", "NO {}", "no evidence of {}", "without {}", "w/o {}", "absence of {}", "absent {}", "free of {}",
    "negative for {}", "neg {}", "lack of {}", "not {}", "non-{}", "excluded {}", "excludes {}", "ruled out {}", "never {}",
    "nil {}", "minus {}", "denies {}", "possible {}", "?{}", "? {}", "probable {}", "probably {}", "likely {}", "suspected {}",
    "suspicion of {}", "suspicious for {}", "questionable {}", "query {}", "rule out {}", "r/o {}", "R/O {}", "cannot exclude {}",
    "can't rule out {}", "could be {}", "may be {}", "maybe {}", "presumed {}", "suggestive of {}", "consistent with {}",
    "c/w {}", "concern for {}", "concerning for {}", "worrisome for {}", "equivocal {}", "indeterminate {}", "differential: {}",
    "DDx {}", "evaluate for {}", "screening for {}", "history of {}", "h/o {}", "hx {}", "s/p {}", "status post {}", "prior {}",
    "previous {}", "old {}", "resolved {}", "resolving {}", "healed {}", "known {}", "treated {}", "risk of {}", "unlikely {}",
    "borderline {}", "- {}", "-{}", "– {}", "−{}", "+{}", "+/- {}", "±{}", "~{}", "!{}", "¬{}", "<{}>", "[{}]", "({})",
    "normal, no {}", "negative {}", "not excluded: {}", "neither {}", "doubtful {}", "unconfirmed {}", "mimicking {}",
)  # fmt: skip
SUFFIX_PATTERNS = (
    "{}?", "{} ?", "{} (?)", "{} (-)", "{} -", "{}-", "{} –", "{} +", "{} (+)", "{}+", "{} +/-", "{} ±", "{} -ve", "{} (neg)",
    "{} neg", "{} negative", "{}: no", "{}: 0", "{}: 1", "{} = 0", "{}=1", "{} 0", "{} (0)", "{}: absent", "{} absent",
    "{} excluded", "{} ruled out", "{} unlikely", "{} likely", "{} possible", "{} suspected", "{} resolved", "{} not seen",
    "{} not excluded", "{} cannot be excluded", "{} no", "{} none", "{} n", "{}: yes", "{} positive", "{} 70%", "{} 0.7",
    "{}-free", "{} vs edema", "{} versus mass", "{} or mass", "{} / mass", "{}/mass", "{}!", "{} *", "{} (healed)",
    "{} in the past", "{} isn't present", "{} was not found", "{} questionable", "{} if clinically indicated", "{} or not",
    "{} normal", "{} (probable)", "{}, probable", "{}_neg", "{}_no", "{}？", "{} （－）",
)  # fmt: skip


@given(
    st.sampled_from(FINDING_NAMES),
    st.sampled_from((*PREFIX_PATTERNS, *SUFFIX_PATTERNS)),
    st.sampled_from(("", "left ", "right ", "mild ", "large ")),
)
def test_negated_uncertain_past_or_signed_label_is_refused(name, pattern, qualifier):
    # Qualifiers must not hide the negation.
    label = parse_label(pattern.format(qualifier + name))
    assert label.problem, label
    assert label.term is None


@pytest.mark.parametrize(
    "text",
    [
        "NoPneumothorax",
        "NonCOVID",
        "normal study",
        "clear lungs",
        "unremarkable",
        "No Finding",
        "no acute disease",
        "WNL",
        "intact",
        "abnormal",
        "нет пневмонии",
        "keine Pneumonie",
        "?",
        "",
        "tumorfree",
        "postop",
    ],
)
def test_label_without_finding_is_refused(text):
    assert parse_label(text).problem


@pytest.mark.parametrize(
    "text",
    [
        "our grade III",
        "HER2-negative carcinoma",
        "clear cell adenoma",
        "T2 hyperintensity",
        "Ménière's disease",
        "Lung Lesion",
        "snowman sign",
        "notochord remnant",
        "oral ranula",
        "nodular goitre II",
        "β-thalassaemia",
    ],
)
def test_unknown_labels_are_accepted(text):
    label = parse_label(text)
    assert (label.term, label.problem) == (None, "")


def test_context_resolves_bare_words():
    def of(text, region, modality):
        term = parse_label(text, parse_image_context([region] if region else [], modality)).term
        return term.concept if term else None

    for word, region, modality, concept in (
        ("mass", "breast", "Mammography", "breast mass"),
        ("Mass", "", "mammogram", "breast mass"),
        ("masses", "chest", "Mammography", "breast mass"),
        ("mass", "chest", "X-ray", "pulmonary mass"),
        ("mass", "thorax", "radiograph", "pulmonary mass"),
        ("effusion", "knee", "X-ray", "joint effusion"),
        ("effusion", "knee joint", "MRI", "joint effusion"),
        ("effusion", "chest", "CXR", "pleural effusion"),
        ("effusion", "heart", "echocardiography", "pericardial effusion"),
        ("DR", "eye", "Fundus photography", "diabetic retinopathy"),
        ("dr", "", "color fundus", "diabetic retinopathy"),
        ("RA", "heart", "CT", "right atrium"),
        ("RA", "hand", "X-ray", "rheumatoid arthritis"),
    ):
        assert of(word, region, modality) == concept, (word, region, modality)

    # In these contexts a word has several meanings or none.
    for word, region, modality in (
        ("mass", "", "X-ray"), ("mass", "abdomen", "CT"), ("mass", "chest", ""), ("mass", "knee", "X-ray"), ("effusion", "", "X-ray"),
        ("effusion", "chest", "CT"), ("effusion", "abdomen", "Ultrasound"), ("DR", "chest", "X-ray"), ("RA", "chest", "X-ray"),
        ("RA", "", ""), ("edema", "knee", "MRI"), ("consolidation", "leg", "X-ray"), ("nodule", "neck", "CT"),
        ("mass", "chest; abdomen", "X-ray"),
    ):  # fmt: skip
        assert of(word, region, modality) is None, (word, region, modality)


def test_label_key_keeps_sides_and_merges_spellings():
    assert (
        label_key("Left pleural effusion")
        == label_key("pleural effusions, L")
        == label_key("left-sided pleural effusion")
    )
    assert label_key("left pleural effusion") != label_key("right pleural effusion")
    assert label_key("our signs") == label_key("Our sign")
    assert parse_label("left ventricle").term.concept == "left ventricle"
    assert parse_label("kidney_left").side == "left"


def test_regions_and_modalities_are_compared():
    # Only disjoint regions prove that an image cannot show a finding.
    assert regions_disjoint(find_regions("knee"), find_regions("heart"))
    assert regions_disjoint(find_regions("retina"), find_regions("chest"))
    for name, other_name in (
        ("chest", "abdomen"),
        ("hand", "head"),
        ("skin", "chest"),
        ("whole body", "brain"),
        ("", "brain"),
        ("aorta", "kidney"),
    ):
        assert not regions_disjoint(find_regions(name), find_regions(other_name)), (
            name,
            other_name,
        )

    assert modalities_disjoint(find_modalities("chest CT"), find_modalities("T2-weighted MRI"))
    for name, other_name in (
        ("Mammography", "X-ray"),
        ("PET/CT", "CT"),
        ("angiography", "MRI"),
        ("US", "echocardiography"),
    ):
        assert not modalities_disjoint(find_modalities(name), find_modalities(other_name)), (
            name,
            other_name,
        )

    findings = terms_by_name("finding")
    assert cannot_show(parse_image_context(["knee"], "X-ray"), findings["cardiomegaly"])
    assert not cannot_show(parse_image_context(["chest"], "X-ray"), findings["cardiomegaly"])
    assert not cannot_show(parse_image_context(["knee"], "X-ray"), findings["fracture"])
    assert [find_ct_window(text) for text in ("rib_left_3", "lungNodule", "kidney_left", "own name", "brain tumour")] == [
        "bone", "lung", "soft tissue", "soft tissue", "brain",
    ]  # fmt: skip
