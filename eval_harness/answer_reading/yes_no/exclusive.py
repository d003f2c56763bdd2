"""Words that exclude one another: what is the one is not the other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from eval_harness.answer_reading.options import stem
from eval_harness.answer_reading.plain_text import holds

EXCLUSIVE = tuple(
    {name: place for place, names in enumerate(group.split("|")) for name in names.split()}
    for group in (
        "left|right", "upper superior|middle|lower inferior", "anterior|posterior", "medial|lateral", "proximal|distal",
        "axial transverse|coronal|sagittal", "t1|t2|flair", "pa posteroanterior|ap anteroposterior|lateral", "frontal|lateral",
        "ct|mri|xray|ultrasound|endoscopy|mammogram|pet", "chest thoracic|abdominal abdomen|brain head|pelvic pelvis|knee|spine spinal",
        "lung lungs pulmonary|liver hepatic|kidney kidneys renal|spleen splenic|pancreas pancreatic|stomach gastric|bladder vesical"
        "|thyroid|prostate prostatic|uterus uterine|ovary ovarian|heart cardiac|breast|colon colonic"
        "|gallbladder gallstone gallstones cholelithiasis",
        "benign|malignant cancerous", "acute|chronic", "mild minimal slight|moderate|severe massive", "solid|cystic",
        "hyperdense|hypodense|isodense", "single|multiple",
        "hyperintense|hypointense|isointense", "hyperechoic|hypoechoic|anechoic", "midline central|deviated", "unilateral|bilateral",
        "increased|decreased reduced|unchanged stable", "improved|worsened progressed deteriorated|unchanged stable",
        "open|closed shut", "empty|full", "day daytime|night nighttime", "indoors|outdoors", "same identical equal|different unequal",
        "clean|dirty", "male man|female woman", "wet|dry", "even|odd", "well|poorly|moderately", "arterial|venous", "pleural|pericardial",
    )
)  # fmt: skip
"""Words that exclude one another; those before the next bar mean the same."""
_MODALITY = (
    (re.compile(r"\bx[ -]?rays?\b|\bradiographs?\b|\bplain films?\b", re.IGNORECASE), "xray"),
    (re.compile(r"\bcomput\w+ tomograph\w*|\bcat scan\b", re.IGNORECASE), "ct"),
    (re.compile(r"\bmagnetic resonance(?: imag\w+)?|\bmr (?:imag\w+|scan)", re.IGNORECASE), "mri"),
    (re.compile(r"\bultrasonogra\w+|\bsonogra\w+", re.IGNORECASE), "ultrasound"),
)
_OF_MODALITY = ("ray", "radiograph", "plain film", "tomograph", "cat scan", "magnetic", "mr ", "sonogra")


def one_name(text: str) -> str:
    """A text with one name for each imaging modality."""
    if holds(text.lower(), _OF_MODALITY):
        for pattern, name in _MODALITY:
            text = pattern.sub(name, text)
    return text


def is_another(said: frozenset[str], asked: frozenset[str]) -> bool:
    """Whether words say another value than those that are asked for, and not those."""
    for group in EXCLUSIVE:
        if not (wanted := asked & group.keys()) or not (named := said & group.keys()):
            continue
        if {group[word] for word in wanted}.isdisjoint({group[word] for word in named}):
            return True
    return False


def says_several(said: frozenset[str], asked: frozenset[str]) -> bool:
    """Whether words say the value asked for and another that excludes it ("benign or malignant"); sides and parts may stand together."""
    return any(
        len({group[word] for word in said & group.keys()}) > 1
        for group in _values_in(asked)
        if not (said & group.keys()) <= asked  # "the thoracic spine"
    )


@lru_cache(maxsize=4096)
def _values_in(asked: frozenset[str]) -> tuple[dict[str, int], ...]:
    """The values but for sides and parts of which words say one."""
    return tuple(group for group in EXCLUSIVE[5:] if asked & group.keys())


_FINDINGS = {
    stem(word): place
    for place, words in enumerate(
        (
            "pneumothorax pneumothoraces", "effusion effusions fluid hydrothorax",
            "consolidation consolidations infiltrate infiltrates infiltration pneumonia opacity opacities opacification airspace",
            "fracture fractures fractured broken", "cardiomegaly heart cardiac",
            "nodule nodules mass masses tumor tumour tumors metastasis malignancy cancer carcinoma",
            "hemorrhage haemorrhage bleeding bleed hematoma haematoma", "edema oedema", "emphysema", "pneumoperitoneum",
            "stone stones calculus calculi cholelithiasis gallstone gallstones", "appendicitis", "swelling", "calcified calcification",
            "dilated dilatation dilation enlarged widened distended", "intubated intubation endotracheal",
            "tube tubes catheter nasogastric", "thickened thickening",
            "dislocation dislocated", "pacemaker",
            "infarct infarction stroke ischemia ischemic ischaemic", "ventricles hydrocephalus", "inflammation",
            "enhancement", "hernia", "obstruction", "scoliosis",
        )
    )
    for word in words.split()
}  # fmt: skip


def is_another_finding(said: Iterable[str], asked: Iterable[str]) -> bool:
    """Whether words name a finding, and none of those that are asked for."""
    wanted, named = (
        {_FINDINGS[found] for word in words if (found := stem(word)) in _FINDINGS} for words in (asked, said)
    )
    return bool(wanted) and bool(named) and wanted.isdisjoint(named)
