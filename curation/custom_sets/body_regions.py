"""Which organs lie in which region of the body: what a picture of one may show of another.

See also: what else rules out what (`exclusion.py`).
"""

from __future__ import annotations

from functools import cache

from curation.custom_sets.exclusion import words_of

ORGANS = {
    "head": """
        head brain skull orbit orbital eye ocular ophthalmic retina retinal macula optic cornea iris lens fundus face facial jaw
        mandible maxilla maxillary teeth tooth dental gingiva mouth oral tongue palate lip nose nasal nasopharynx pharynx
        pharyngeal oropharynx tonsil parotid salivary sinus paranasal ear mastoid temporomandibular tmj pituitary sella meninges
        cerebellum cerebellar brainstem ventricle carotid
    """,
    "neck": """
        neck thyroid parathyroid larynx laryngeal vocal throat pharynx pharyngeal oropharynx nasopharynx tonsil tongue parotid
        salivary trachea tracheal airway esophagus oesophagus esophageal cervical carotid jugular subclavian cord
    """,
    "chest": """
        chest lung heart breast mammary rib sternum mediastinum mediastinal pleura pleural pericardium pericardial thymus
        diaphragm bronchus bronchi bronchial trachea tracheal airway esophagus oesophagus esophageal coronary ventricle atrium
        sinus hilum aorta aortic cava subclavian axilla axillary clavicle scapula
    """,
    "abdomen": """
        abdomen liver kidney spleen pancreas stomach fundus bowel intestine intestinal gastrointestinal duodenum jejunum ileum
        cecum appendix colon colonic colorectal sigmoid gallbladder gall bladder biliary bile adrenal ureter retroperitoneum
        peritoneum peritoneal mesentery mesenteric omentum umbilical diaphragm hilum sinus portal aorta aortic cava iliac lumbar
        esophagus oesophagus esophageal cord
    """,
    "pelvis": """
        pelvis pelvic hip prostate prostatic uterus uterine fundus ovary ovarian adnexa adnexal endometrium cervix cervical
        vagina rectum rectal anus anal colorectal sigmoid colon bowel appendix bladder ureter urethra testis testes testicle
        testicular scrotum scrotal penis sacrum sacral sacroiliac coccyx acetabulum groin inguinal peritoneum peritoneal sinus
        aorta aortic iliac femoral cord
    """,
    "spine": """
        spine vertebra vertebrae intervertebral disc disk cord lumbar cervical sacral sacrum sacroiliac coccyx
    """,
    "shoulder": """
        shoulder arm humerus humeral scapula clavicle rotator axilla axillary brachial subclavian
    """,
    "forearm": """
        elbow forearm wrist hand finger thumb palm radius radial ulna ulnar carpal metacarpal scaphoid phalanx nail brachial
    """,
    "thigh": """
        thigh femur femoral leg groin inguinal popliteal hamstring
    """,
    "leg": """
        knee leg tibia tibial fibula fibular patella meniscus calf ankle achilles foot heel plantar toe talus talar calcaneus
        tarsal metatarsal phalanx nail popliteal femoral
    """,
}
"""Region of the body -> words for what is in it. Words of several organs (cervical, fundus), and organs of several regions, are in each."""
WHOLE_BODY = {
    "body", "whole", "total", "fetus", "fetal", "foetus", "foetal", "obstetric", "infant", "newborn", "neonate", "neonatal", "baby",
}  # fmt: skip
"""Of a picture of one of these nothing can be told that it does not show."""
NEIGHBOURS = {
    frozenset(pair)
    for pair in (
        ("head", "neck"), ("neck", "chest"), ("chest", "abdomen"), ("abdomen", "pelvis"), ("pelvis", "thigh"), ("thigh", "leg"),
        ("neck", "shoulder"), ("chest", "shoulder"), ("shoulder", "forearm"), ("head", "spine"), ("neck", "spine"), ("chest", "spine"),
        ("abdomen", "spine"), ("pelvis", "spine"), ("abdomen", "forearm"), ("chest", "forearm"), ("pelvis", "forearm"),
        ("abdomen", "thigh"), ("abdomen", "shoulder"), ("spine", "shoulder"), ("spine", "thigh"), ("spine", "forearm"),
        ("thigh", "forearm"), ("head", "shoulder"), ("head", "forearm"),
    )
}  # fmt: skip
"""Regions of which a picture of the one may show part of the other (hands and arms lie beside the trunk on many films, and elbows beside
the head in a scanner; films of the abdomen, and of whole spines, show the hips with the heads of the femurs)."""


@cache
def regions_of(organ: str) -> frozenset[str]:
    """The regions of the body that an organ is in (the aorta in three); none where that is not known."""
    words = words_of(organ)
    if words & WHOLE_BODY:
        return frozenset()
    return frozenset(region for region, names in ORGANS.items() if words & words_of(names))


@cache
def excludes_organ(there: str, candidate: str) -> bool:
    """Whether a picture of `there` shows no part of `candidate`: both are known, in regions that do not border on each other."""
    one, other = regions_of(there), regions_of(candidate)
    near = any(here == asked or frozenset((here, asked)) in NEIGHBOURS for here in one for asked in other)
    return bool(one) and bool(other) and not near
