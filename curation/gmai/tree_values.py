"""The values of the official lexical tree: 18 clinical tasks and departments, 4 granularities (GMAI-MMBench, tables 5 to 7)."""

from __future__ import annotations

from dataset_builders.terms import terms

TASKS = {term.concept: term.synonyms[0] for term in terms("task")}
"""Name -> abbreviation. Table 5 has a nineteenth, Anatomical Structure Recognition, which the text and the public tree do not."""
DEPARTMENTS = {
    "Cardiovascular Surgery": "CS",
    "Dermatology": "D",
    "Endocrinology": "E",
    "Gastroenterology and Hepatology": "GH",
    "General Surgery": "GS",
    "Hematology": "H",
    "Infectious Diseases": "ID",
    "Laboratory Medicine and Pathology": "LMP",
    "Nephrology and Hypertension": "NH",
    "Neurosurgery": "N",
    "Obstetrics and Gynecology": "OG",
    "Oncology (Medical)": "OM",
    "Ophthalmology": "O",
    "Orthopedic Surgery": "OS",
    "Otolaryngology (ENT)/Head and Neck Surgery": "ENT/HNS",
    "Pulmonary Medicine": "PM",
    "Sports Medicine": "SM",
    "Urology": "U",
}
IMAGE, BOX, MASK, CONTOUR = "Image Level", "Box Level", "Mask Level", "Contour Level"
GRANULARITIES = (IMAGE, BOX, MASK, CONTOUR)
OF_KIND = {"class": (IMAGE,), "box": (BOX,), "mask": (MASK, CONTOUR)}
"""Annotation -> the granularities at which it is asked about; a mask is asked about twice."""
