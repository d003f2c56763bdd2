"""What a true statement about an image rules out: which finding, organ, modality or position may be asked about as an absent one.

A term is ruled out only where it can mean neither the same nor something wider or narrower than what is there, nor something that the
picture shows in part. Where that cannot be told the term is not asked about.

See also: drawing and balancing (`balance.py`), the questions (`probing.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

SMALL_WORDS = {"a", "an", "the", "of", "in", "and", "with", "to", "at", "is", "finding", "findings", "sign", "signs"}
"""Words that tell no two findings apart."""
GENERIC = {
    "abnormality", "abnormal", "anomaly", "change", "condition", "defect", "disease", "disorder", "injury", "lesion", "malformation",
    "other", "pathology", "process", "syndrome", "trauma", "unspecified", "infection", "inflammation", "degenerative", "degeneration",
    "air", "gas", "fluid", "fat", "fatty", "collection", "density", "hypodensity", "hyperdensity", "hypointensity", "hyperintensity",
    "intensity", "signal", "enhancement", "attenuation", "lucency", "shadow", "spot", "enlargement", "dilated", "dilatation", "dilation",
    "distended", "thickening", "thickened", "narrowing", "narrowed", "blunted", "blunting", "curvature", "displacement", "slippage",
    "obstruction", "effect", "failure", "postoperative", "surgery", "surgical",
}  # fmt: skip
"""Words that describe what many findings look like, or name many of them: a term with one rules out nothing, and is ruled out by nothing
but a person's word."""
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
    "doppler": "ultrasound", "mammogram": "mammography", "scintigraphy": "spect", "cystic": "cyst", "herniation": "hernia",
    "torn": "tear", "rupture": "tear", "ruptured": "tear", "calculus": "stone", "calculi": "stone", "gallstone": "stone",
}  # fmt: skip
"""Word -> a word that means the same here."""
PHRASES = {
    "x ray": "xray", "computed tomography": "ct", "cat scan": "ct", "magnetic resonance imaging": "mri", "magnetic resonance": "mri",
    "plain film": "xray", "enlarged heart": "cardiomegaly", "heart enlargement": "cardiomegaly", "cardiac enlargement": "cardiomegaly",
    "enlarged cardiac silhouette": "cardiomegaly", "positron emission tomography": "pet",
}  # fmt: skip
SHAPES = {
    "mass": re.compile(r".*(?:omas?|omata|cancers?|tumou?rs?|plasia)"), "stone": re.compile(r".*(?:liths?|lithiasis|stones?)"),
    "bleeding": re.compile(r"ha?emo(?!dyn).*"), "hernia": re.compile(r".*(?:hernia|cele)s?"),
}  # fmt: skip
"""Word -> how words of its kind are formed: a meningioma is a mass, cholelithiasis are stones."""
FAMILIES = (
    frozenset({"infiltration", "consolidation", "pneumonia", "opacity", "atelectasis", "edema", "nodule", "mass", "lung", "covid",
               "tuberculosis", "fibrosis", "interstitial", "reticular", "honeycombing", "bronchiectasis", "cavity", "cavitation",
               "pneumonitis", "collapse", "alveolar", "granuloma"}),
    frozenset({"effusion", "pleural", "hemothorax", "hydrothorax", "hydropneumothorax", "empyema", "fluid", "thickening"}),
    frozenset({"pneumothorax", "hydropneumothorax", "hemopneumothorax"}),
    frozenset({"cardiomegaly", "cardiomediastinum", "cardiomyopathy", "heart"}),
    frozenset({"bleeding", "infarction", "edema", "mass", "midline"}),
    frozenset({"emphysema", "hyperinflation", "copd", "bulla"}),
    frozenset({"mass", "nodule", "cyst", "metastasis", "lymphoma", "abscess", "granuloma"}),
    frozenset({"fracture", "dislocation", "subluxation", "collapse", "compression", "osteoporosis", "osteopenia"}),
    frozenset({"stone", "calcification", "hydronephrosis"}),
    frozenset({"embolism", "embolus", "thrombus", "thrombosis", "clot", "occlusion", "stenosis", "infarction", "ischemia", "ischemic"}),
    frozenset({"aneurysm", "dissection", "ectasia", "pseudoaneurysm", "thrombus"}),
    frozenset({"hydrocephalus", "ventriculomegaly", "atrophy"}),
    frozenset({"arthritis", "osteoarthritis", "arthrosis", "osteophyte", "spondylosis", "spondylolisthesis", "listhesis", "stenosis",
               "disc", "disk", "hernia", "protrusion", "bulge", "bulging", "extrusion", "scoliosis", "kyphosis", "lordosis", "effusion"}),
    frozenset({"tear", "sprain", "avulsion", "ligament", "tendon", "meniscus", "meniscal", "cruciate", "effusion", "edema"}),
    frozenset({"effusion", "ascites", "abscess", "cyst", "edema", "bleeding", "seroma", "empyema"}),
    frozenset({"steatosis", "cirrhosis", "hepatitis", "hepatomegaly", "splenomegaly", "ascites", "varix", "varices"}),
    frozenset({"sclerosis", "demyelination", "demyelinating", "plaque", "gliosis", "leukoaraiosis", "microangiopathy", "infarction"}),
    frozenset({"ileus", "volvulus", "intussusception", "hernia", "perforation", "pneumoperitoneum"}),
    frozenset({"diverticulosis", "diverticulitis", "diverticulum", "diverticula", "colitis", "appendicitis"}),
    frozenset({"lymphadenopathy", "adenopathy", "lymphoma", "mass", "node"}),
    frozenset({"device", "pacemaker", "catheter", "tube", "line", "drain", "stent", "valve", "prosthesis", "implant", "screw", "plate",
               "port", "wire", "lead", "clip", "hardware", "support", "replacement", "arthroplasty", "fixation"}),
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
TECHNIQUES = {
    "xray": r"x ?rays?|\w*radiogra\w*|roentgen\w*|cxr|dx|cr|plain films?|films?|panoramic|opg|kub|mammo\w*|tomosynthesis|de?xa|"
            r"fluoroscop\w*|barium|dsa",
    "ct": r"ct\w*|(?:hr|cb|nc|ce|ld|md|q|pet)ct|(?:computed|computerized) tomogra\w*|cat scan",
    "mri": r"mri?|mr[a-z]|fmri|magnetic|flair|t[12]\w*|dwi|adc|swi|stir",
    "ultrasound": r"us|ultraso\w*|sonogra\w*|doppler|echo\w*|ivus|eus",
    "nuclear": r"pet|spect|nuclear|scintigra\w*|bone scan|nm|fdg|positron",
    "oct": r"octa?|optical coherence",
    "light": r"fundus|dermo?a?t?oscop\w*|photo(?!n)\w*|\w*endoscop\w*|colonoscop\w*|gastroscop\w*|laparoscop\w*|bronchoscop\w*|"
             r"cystoscop\w*|capsule|slit|fluorescein",
    "microscopy": r"\w*microscop\w*|histo\w*|cytolog\w*|patholog\w*|h e|he|smear|stain\w*|slides?",
}  # fmt: skip
"""How images are made -> the words for it. Angiography, contrast and the like may be any, and say nothing."""
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


def differs_from(there: Iterable[str], candidate: str) -> bool:
    """Whether none of the findings `there` is by its words `candidate`, or a part or kind of it: enough where a person says that the
    candidate is absent."""
    return not any(_overlaps(words_of(known), words_of(candidate)) for known in there)


def _overlaps(first: frozenset[str], second: frozenset[str]) -> bool:
    return not first or not second or _all_in(first, second) or _all_in(second, first)


@cache
def _related(one: str, other: str) -> bool:
    """Whether two findings may be one, or one may be part or kind of the other."""
    first, second = words_of(one), words_of(other)
    if _overlaps(first, second) or (first | second) & GENERIC or _is_abbreviated(one) or _is_abbreviated(other):
        return True
    kinds_of_first, kinds_of_second = _with_kinds(first), _with_kinds(second)
    if (kinds_of_first - first) & kinds_of_second or (kinds_of_second - second) & kinds_of_first:
        return True
    families = [
        family for family in FAMILIES if any(_alike(word, member) for word in kinds_of_first for member in family)
    ]
    return any(any(_alike(word, member) for member in family) for family in families for word in kinds_of_second)


def _with_kinds(words: frozenset[str]) -> frozenset[str]:
    return words | {kind for kind, shape in SHAPES.items() if any(map(shape.fullmatch, words))}


def _is_abbreviated(term: str) -> bool:
    """Whether a term has an abbreviation, whose meaning its letters do not tell: PE, GGO, HCC."""
    return (term.upper() != term and bool(re.search(r"\b[A-Z]{2,5}s?\b", term))) or bool(
        re.fullmatch(r"[A-Z]{2,4}", term)
    )


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
    """Whether an image made by `there` was not made by `candidate`: how each is made is known, and in common they have nothing (PET/CT is
    a CT too, mammography an X-ray)."""
    one, other = _techniques(there), _techniques(candidate)
    return bool(one) and bool(other) and not one & other


def _techniques(modality: str) -> set[str]:
    text = " ".join(re.findall(r"[a-z0-9]+", modality.casefold()))
    return {technique for technique, words in TECHNIQUES.items() if re.search(rf"\b(?:{words})\b", text)}


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
