"""What a true statement about an image rules out: which finding, organ, modality or position may be asked about as an absent one.

A term is ruled out only where it can mean neither the same nor something wider or narrower than what is there, nor something that the
picture shows in part. Where that cannot be told the term is not asked about.

See also: drawing and balancing (`balance.py`), the questions (`probing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

SMALL_WORDS = {
    "a",
    "an",
    "the",
    "of",
    "in",
    "and",
    "with",
    "to",
    "at",
    "is",
    "finding",
    "findings",
    "sign",
    "signs",
    "disease",
    "lesion",
}
"""Words that tell no two findings apart."""
SAME_WORDS = {
    "pulmonary": "lung", "pneumonic": "lung", "hepatic": "liver", "renal": "kidney", "cardiac": "heart", "cerebral": "brain",
    "gastric": "stomach", "splenic": "spleen", "pancreatic": "pancreas", "osseous": "bone", "bony": "bone", "vertebral": "vertebra",
    "spinal": "spine", "thoracic": "chest", "thorax": "chest", "abdominal": "abdomen", "cranial": "head", "intracranial": "brain",
    "hemorrhage": "bleeding", "haemorrhage": "bleeding", "hematoma": "bleeding", "haematoma": "bleeding", "bleed": "bleeding",
    "tumor": "mass", "tumour": "mass", "neoplasm": "mass", "cancer": "mass", "carcinoma": "mass", "malignancy": "mass",
    "oedema": "edema", "swelling": "edema", "infarct": "infarction", "stroke": "infarction", "enlarged": "enlargement",
    "fractured": "fracture", "broken": "fracture", "calcified": "calcification", "opacification": "opacity", "nodular": "nodule",
    "radiograph": "xray", "radiography": "xray", "x-ray": "xray", "roentgen": "xray", "dx": "xray", "cr": "xray", "film": "xray",
    "tomography": "ct", "cta": "ct", "cect": "ct", "mr": "mri", "mra": "mri", "magnetic": "mri", "flair": "mri",
    "us": "ultrasound", "sonography": "ultrasound", "sonogram": "ultrasound", "echocardiography": "ultrasound", "echo": "ultrasound",
    "doppler": "ultrasound", "mammogram": "mammography", "scintigraphy": "spect",
}  # fmt: skip
"""Word -> a word that means the same here."""
PHRASES = {
    "x ray": "xray", "computed tomography": "ct", "cat scan": "ct", "magnetic resonance imaging": "mri", "magnetic resonance": "mri",
    "plain film": "xray", "enlarged heart": "cardiomegaly", "heart enlargement": "cardiomegaly", "cardiac enlargement": "cardiomegaly",
    "enlarged cardiac silhouette": "cardiomegaly", "positron emission tomography": "pet",
}  # fmt: skip
FAMILIES = (
    frozenset({"infiltration", "consolidation", "pneumonia", "opacity", "atelectasis", "edema", "nodule", "mass", "lung", "covid",
               "tuberculosis", "fibrosis"}),
    frozenset({"effusion", "pleural", "hemothorax", "hydrothorax", "hydropneumothorax", "empyema", "fluid", "thickening"}),
    frozenset({"pneumothorax", "hydropneumothorax", "hemopneumothorax"}),
    frozenset({"cardiomegaly", "cardiomediastinum", "cardiomyopathy", "heart"}),
    frozenset({"bleeding", "infarction", "edema", "mass", "midline"}),
    frozenset({"emphysema", "hyperinflation", "copd", "bulla"}),
    frozenset({"mass", "nodule", "cyst", "metastasis", "lymphoma", "abscess", "granuloma"}),
    frozenset({"fracture", "dislocation", "collapse", "compression"}),
)  # fmt: skip
"""Findings that readers call by each other's names, or of which one comes with, or holds, another. Of a family nothing is ruled out by
a member: an opacity may be called infiltrate, consolidation or pneumonia."""
REGIONS = {
    "head": ("head", "brain", "skull", "orbit", "eye", "face", "sinus", "sinuses", "jaw", "mandible", "teeth",
             "tooth", "dental", "retina", "ear"),
    "neck": ("neck", "thyroid", "larynx", "cervical", "carotid"),
    "chest": ("chest", "lung", "heart", "breast", "rib", "ribs", "mediastinum", "clavicle", "esophagus", "aorta"),
    "abdomen": ("abdomen", "liver", "kidney", "spleen", "pancreas", "stomach", "bowel", "colon", "gallbladder", "bladder"),
    "pelvis": ("pelvis", "hip", "prostate", "uterus", "ovary", "rectum", "sacrum"),
    "spine": ("spine", "vertebra", "vertebrae", "cord", "lumbar"),
    "shoulder": ("shoulder", "arm", "humerus"),
    "forearm": ("elbow", "forearm", "wrist", "hand", "finger"),
    "thigh": ("thigh", "femur"),
    "leg": ("knee", "leg", "tibia", "ankle", "foot", "toe"),
}  # fmt: skip
NEIGHBOURS = {
    frozenset(pair)
    for pair in (
        ("head", "neck"), ("neck", "chest"), ("chest", "abdomen"), ("abdomen", "pelvis"), ("pelvis", "thigh"), ("thigh", "leg"),
        ("neck", "shoulder"), ("chest", "shoulder"), ("shoulder", "forearm"), ("head", "spine"), ("neck", "spine"), ("chest", "spine"),
        ("abdomen", "spine"), ("pelvis", "spine"), ("abdomen", "forearm"), ("chest", "forearm"), ("pelvis", "forearm"),
    )
}  # fmt: skip
"""Regions of which a picture of the one may show part of the other (hands lie beside the trunk on many films)."""
AXES = (
    {"left": 0, "right": 1},
    {"upper": 0, "superior": 0, "apical": 0, "apex": 0, "top": 0, "middle": 1, "mid": 1, "lower": 2, "inferior": 2, "basal": 2,
     "base": 2, "bottom": 2},
    {"anterior": 0, "frontal": 0, "posterior": 1, "occipital": 1, "ventral": 0, "dorsal": 1},
    {"cerebellum": 0, "cerebellar": 0, "frontal": 1, "temporal": 2, "occipital": 3, "brainstem": 4, "pons": 4},
)  # fmt: skip
"""Words of position that rule each other out."""
EVERYWHERE = re.compile(
    r"\b(?:bilateral|both|diffuse|multiple|scattered|entire|whole|throughout|generali[sz]ed|multifocal|all)\b"
)


@cache
def words_of(term: str) -> frozenset[str]:
    """The words that a term's meaning hangs on, in one spelling: `Pulmonary nodules` -> {lung, nodule}."""
    text = " ".join(re.findall(r"[a-z0-9]+", term.casefold().replace("x-ray", "xray")))
    for phrase, word in PHRASES.items():
        text = re.sub(rf"\b{phrase}\b", word, text)
    words = (SAME_WORDS.get(word, SAME_WORDS.get(_singular(word), _singular(word))) for word in text.split())
    return frozenset(word for word in words if word not in SMALL_WORDS)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "is", "us")) else word


def _alike(one: str, other: str) -> bool:
    """Whether two words are forms of one: infiltrate and infiltration, pneumonia and pneumonitis."""
    shorter = min(len(one), len(other))
    common = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    return one == other or (common >= 5 and common >= 0.75 * shorter and max(len(one), len(other)) - common <= 5)


def _all_in(some: frozenset[str], others: frozenset[str]) -> bool:
    return all(any(_alike(word, other) for other in others) for word in some)


def same_term(one: str, other: str) -> bool:
    """Whether two terms are spellings of one: Infiltrate and Infiltration, lung nodule and pulmonary nodules."""
    first, second = words_of(one), words_of(other)
    if not first or not second:
        return one.casefold().split() == other.casefold().split()
    return _all_in(first, second) and _all_in(second, first)


def excludes_finding(there: Iterable[str], candidate: str) -> bool:
    """Whether an image that shows just the findings `there` rules out the finding `candidate`."""
    return not any(_related(known, candidate) for known in there)


@cache
def _related(one: str, other: str) -> bool:
    """Whether two findings may be one, or one may be part or kind of the other."""
    first, second = words_of(one), words_of(other)
    if not first or not second or _all_in(first, second) or _all_in(second, first):
        return True
    families = [family for family in FAMILIES if any(_alike(word, member) for word in first for member in family)]
    return any(any(_alike(word, member) for member in family) for family in families for word in second)


def region_of(organ: str) -> str | None:
    """The region of the body that an organ is in; None where it is not known."""
    words = words_of(organ)
    found = {region for region, organs in REGIONS.items() for name in organs if words_of(name) & words}
    return found.pop() if len(found) == 1 else None


@cache
def excludes_organ(there: str, candidate: str) -> bool:
    """Whether a picture of `there` shows no part of `candidate`: both are known, in regions that do not border on each other."""
    one, other = region_of(there), region_of(candidate)
    return one is not None and other is not None and one != other and frozenset((one, other)) not in NEIGHBOURS


@cache
def excludes_modality(there: str, candidate: str) -> bool:
    """Whether an image made by `there` was not made by `candidate`: no word of the one is one of the other (PET/CT is a CT too)."""
    first, second = words_of(there), words_of(candidate)
    return bool(first) and bool(second) and not any(_alike(a, b) for a in first for b in second)


@cache
def excludes_position(there: str, candidate: str) -> bool:
    """Whether what lies at `there` does not lie at `candidate`: left and right, upper and lower ...; both in the same frame (the image's
    or the patient's sides), neither everywhere."""
    one, other = there.casefold(), candidate.casefold()
    if EVERYWHERE.search(one) or EVERYWHERE.search(other) or ("of the image" in one) != ("of the image" in other):
        return False
    first, second = (set(re.findall(r"[a-z]+", text)) for text in (one, other))
    for axis in AXES:
        here, asks = {axis[word] for word in first & axis.keys()}, {axis[word] for word in second & axis.keys()}
        if len(here) == len(asks) == 1 and here != asks:
            return True
    return False
