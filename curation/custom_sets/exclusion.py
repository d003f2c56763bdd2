"""What a true statement about an image rules out: which finding, organ, modality or position may be asked about as an absent one.

A term is ruled out only where it can mean neither the same nor something wider or narrower than what is there, nor something that the
picture shows in part. Where that cannot be told the term is not asked about.

See also: organs (`body_regions.py`), drawing and balancing (`balance.py`), the questions (`probing.py`).
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
    "obstruction", "effect", "failure", "postoperative", "surgery", "surgical", "size", "increased", "decreased", "prominent",
    "deviation", "shift", "deformity", "loss", "stranding",
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
    "caries": "cavity",
}  # fmt: skip
"""Word -> a word that means the same here."""
PHRASES = {
    "x ray": "xray", "computed tomography": "ct", "cat scan": "ct", "magnetic resonance imaging": "mri", "magnetic resonance": "mri",
    "plain film": "xray", "enlarged heart": "cardiomegaly", "heart enlargement": "cardiomegaly", "cardiac enlargement": "cardiomegaly",
    "enlarged cardiac silhouette": "cardiomegaly", "positron emission tomography": "pet",
}  # fmt: skip
SHAPES = {
    "mass": re.compile(r".*(?:omas?|omata|cancers?|tumou?rs?|plasia)"), "stone": re.compile(r".*(?:liths?|lithiasis|stones?)"),
    "bleeding": re.compile(r"ha?em(?:o(?!dyn)|arthr).*"), "hernia": re.compile(r".*(?:hernia|cele)s?"), "edema": re.compile(r".*o?edema"),
    "pneumonia": re.compile(r".*pneumoni(?:a|as|c|tis)"), "arthritis": re.compile(r".*(?:arthr|spondyl|ili)itis"),
    "effusion": re.compile(r"(?:hydr|py|chyl|ha?em)o?(?:pneumo)?(?:thorax|arthr|pericard).*"),
}  # fmt: skip
"""Word -> how words of its kind are formed: a meningioma is a mass, cholelithiasis are stones."""
FAMILIES = (
    frozenset({"infiltration", "consolidation", "pneumonia", "opacity", "atelectasis", "edema", "nodule", "mass", "lung", "covid",
               "tuberculosis", "fibrosis", "interstitial", "reticular", "honeycombing", "bronchiectasis", "cavity", "cavitation",
               "pneumonitis", "collapse", "alveolar", "granuloma", "congestion", "kerley", "scar", "scarring", "asbestosis", "silicosis",
               "pneumoconiosis", "bronchitis", "bronchiolitis", "sarcoidosis", "aspiration", "contusion", "cephalization"}),
    frozenset({"effusion", "pleural", "hemothorax", "hydrothorax", "hydropneumothorax", "empyema", "fluid", "thickening", "asbestosis"}),
    frozenset({"pneumothorax", "hydropneumothorax", "hemopneumothorax", "pneumomediastinum", "collapse"}),
    frozenset({"cardiomegaly", "cardiomediastinum", "cardiomyopathy", "heart", "pericardial"}),
    frozenset({"bleeding", "infarction", "edema", "mass", "midline"}),
    frozenset({"emphysema", "hyperinflation", "copd", "bulla"}),
    frozenset({"mass", "nodule", "cyst", "metastasis", "lymphoma", "abscess", "granuloma"}),
    frozenset({"fracture", "dislocation", "subluxation", "collapse", "compression", "osteoporosis", "osteopenia"}),
    frozenset({"stone", "calcification", "hydronephrosis"}),
    frozenset({"stone", "sludge", "cholecystitis", "cholangitis"}),
    frozenset({"embolism", "embolus", "thrombus", "thrombosis", "clot", "occlusion", "stenosis", "infarction", "ischemia", "ischemic"}),
    frozenset({"aneurysm", "dissection", "ectasia", "pseudoaneurysm", "thrombus"}),
    frozenset({"hydrocephalus", "ventriculomegaly", "atrophy"}),
    frozenset({"arthritis", "osteoarthritis", "arthrosis", "osteophyte", "spondylosis", "spondylolisthesis", "listhesis", "stenosis",
               "disc", "disk", "hernia", "protrusion", "bulge", "bulging", "extrusion", "scoliosis", "kyphosis", "lordosis", "effusion",
               "spur", "ankylosis", "ankylosing", "gout", "tophus", "tophi", "synovitis", "bursitis", "erosion", "chondrocalcinosis"}),
    frozenset({"tear", "sprain", "avulsion", "ligament", "tendon", "meniscus", "meniscal", "cruciate", "effusion", "edema", "tendinitis",
               "tendinopathy", "tendinosis", "impingement"}),
    frozenset({"effusion", "ascites", "abscess", "cyst", "edema", "bleeding", "seroma", "empyema"}),
    frozenset({"steatosis", "cirrhosis", "hepatitis", "hepatomegaly", "splenomegaly", "ascites", "varix", "varices"}),
    frozenset({"sclerosis", "demyelination", "demyelinating", "plaque", "gliosis", "leukoaraiosis", "microangiopathy", "infarction",
               "encephalomalacia", "encephalitis"}),
    frozenset({"ileus", "volvulus", "intussusception", "hernia", "perforation", "pneumoperitoneum"}),
    frozenset({"diverticulosis", "diverticulitis", "diverticulum", "diverticula", "colitis", "appendicitis"}),
    frozenset({"lymphadenopathy", "adenopathy", "lymphoma", "mass", "node"}),
    frozenset({"retinopathy", "maculopathy", "macular", "microaneurysm", "exudate", "drusen", "neovascularization", "edema", "bleeding"}),
    frozenset({"cataract", "opacity", "lens"}),
    frozenset({"nevus", "nevi", "naevus", "naevi", "mole", "melanocytic"}),
    frozenset({"polyp", "adenoma"}),
    frozenset({"ulcer", "ulceration", "ulcerative", "erosion", "erosive"}),
    frozenset({"cavity", "decay"}),
    frozenset({"fibroid", "myoma", "leiomyoma"}),
    frozenset({"contusion", "bruise", "bleeding"}),
    frozenset({"osteomyelitis", "lytic", "osteolysis", "osteolytic", "erosion", "destruction", "metastasis", "metastatic", "mass"}),
    frozenset({"pancreatitis", "pseudocyst", "necrosis", "cyst"}),
    frozenset({"crohn", "ileitis", "colitis", "enteritis", "ibd"}),
    frozenset({"pyelonephritis", "nephritis", "abscess", "hydronephrosis", "pyelectasis"}),
    frozenset({"meningitis", "encephalitis", "meningeal", "leptomeningeal", "cerebritis", "abscess"}),
    frozenset({"glaucoma", "cupping", "papilledema", "disc", "disk"}),
    frozenset({"psoriasis", "eczema", "dermatitis", "rash", "plaque"}),
    frozenset({"keratosis", "wart", "verruca", "papilloma"}),
    frozenset({"endometriosis", "endometrioma", "adenomyosis"}),
    frozenset({"dextrocardia", "situs", "heterotaxy"}),
    frozenset({"regurgitation", "insufficiency", "stenosis", "valve"}),
    frozenset({"hypertrophy", "hypertrophic", "hyperplasia"}),
    frozenset({"goiter", "goitre", "thyroid", "nodule"}),
    frozenset({"otitis", "mastoiditis", "effusion"}),
    frozenset({"eventration", "diaphragm", "diaphragmatic", "hernia"}),
    frozenset({"device", "pacemaker", "catheter", "tube", "line", "drain", "stent", "valve", "prosthesis", "implant", "screw", "plate",
               "port", "wire", "lead", "clip", "hardware", "support", "replacement", "arthroplasty", "fixation", "foreign",
               "coin", "bullet"}),
)  # fmt: skip
"""Findings that readers call by each other's names, or of which one comes with, or holds, another. Of a family nothing is ruled out by
a member: an opacity may be called infiltrate, consolidation or pneumonia."""
AXES = (
    {"left": 0, "right": 1},
    {"upper": 0, "superior": 0, "top": 0, "middle": 1, "mid": 1, "lower": 2, "inferior": 2, "bottom": 2},
    {"apical": 0, "apex": 0, "basal": 1, "base": 1},  # of a lung above and below, of the heart or prostate the other way round
    {"anterior": 0, "frontal": 0, "posterior": 1, "occipital": 1, "ventral": 0, "dorsal": 1},
    {"cerebellum": 0, "cerebellar": 0, "fronto": 1, "frontal": 1, "temporo": 2, "temporal": 2, "occipito": 3, "occipital": 3,
     "brainstem": 4, "pons": 4, "pontine": 4},
)  # fmt: skip
"""Words of position that rule each other out: names by themselves, sides too but for `SIDED`, the others in the same place only."""
SIDES, NAMES = AXES[0], AXES[-1]
MIDDLE = {"middle", "mid"}
"""Between left and right as well as between top and bottom, where nothing is said that it is the middle of."""
SIDED = {
    "quadrant", "lobe", "liver", "hepatic", "heart", "cardiac", "ventricle", "ventricular", "atrium", "atrial", "coronary", "colon", "main",
}  # fmt: skip
"""Of these a side is a name, or not the patient's: the left lobe of the liver lies in the right upper quadrant too."""
OF_THE_PICTURE = re.compile(r"\b(?:image|picture|figure|panel|photo\w*|film|frame|scan|slide|screen|view)s?\b")
"""Sides of the picture, which of most are the patient's other ones."""
TECHNIQUES = {
    "xray": r"x ?rays?|\w*radiogra\w*|roentgen\w*|cxr|dx|cr|plain films?|films?|panoramic|opg|kub|mammo\w*|tomosynthesis|de?xa|"
            r"fluoroscop\w*|barium|dsa",
    "ct": r"ct\w*|(?:hr|cb|nc|ce|ld|md|q|pet)ct|(?:computed|computerized) tomogra\w*|cat scan",
    "mri": r"mri?|mr[a-z]|fmri|magnetic|flair|t[12]\w*|dwi|adc|swi|stir|gre|[tf]se|epi|mprage|diffusion|(?:spin|gradient|turbo) echo|"
           r"echo planar",
    "ultrasound": r"us|ultraso\w*|sonogra\w*|doppler|echo\w*|ivus|eus",
    "nuclear": r"pet|spect|nuclear|scintigra\w*|bone scan|nm|fdg|positron",
    "oct": r"octa?|optical coherence",
    "light": r"fundus|photo(?!n)\w*|\w+(?<!micro)(?<!fluoro)(?<!spectro)scop\w*|capsule|slit|fluorescein|gross",
    "microscopy": r"\w*microscop\w*|histo\w*|cytolog\w*|patholog\w*|h e|he|smear|stain\w*|slides?",
}  # fmt: skip
"""How images are made -> the words for it. Angiography, contrast and the like may be any, and say nothing."""
EVERYWHERE = re.compile(
    r"\b(?:bi(?:lateral|apical|bas)\w*|both|either|diffuse\w*|multi\w*|scattered|entire|whole|throughout|generali[sz]ed|widespread|"
    r"extensive|all|total|holo\w*|pan[a-z]*)\b"
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
    if EVERYWHERE.search(one) or EVERYWHERE.search(other):
        return False
    if bool(OF_THE_PICTURE.search(one)) != bool(OF_THE_PICTURE.search(other)):
        return False
    first, second = (set(re.findall(r"[a-z]+", text)) for text in (one, other))
    part = _part(first)
    same_part = part == _part(second)
    for axis in AXES:
        here, asks = {axis[word] for word in first & axis.keys()}, {axis[word] for word in second & axis.keys()}
        if len(here) != 1 or len(asks) != 1 or here == asks or (not part and (first | second) & MIDDLE & axis.keys()):
            continue
        if same_part or axis is NAMES or (axis is SIDES and not (first | second) & SIDED):
            return True
    return False


def _part(words: set[str]) -> set[str]:
    """What a position is a part of: a lobe, a zone, a quadrant. The lower lobe of a lung reaches into its middle zone."""
    said = {word for axis in AXES for word in axis} | SMALL_WORDS | {"side", "sided", "region", "area", "portion"}
    return {_singular(word) for word in words - said}
