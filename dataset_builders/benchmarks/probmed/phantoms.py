"""Write the phantom source of ProbMed: questions on drawings with zero, one and two findings."""

from collections.abc import Iterator
from pathlib import Path

from dataset_builders.files import write_json
from dataset_builders.images.phantom_drawings import Drawing, Lesion, draw_phantom

MODALITY_PHRASES = {"mri": "an MRI", "ct": "a CT", "xray": "an X-ray"}
IMAGE_TYPES = (
    ("brain", "mri"),
    ("brain", "ct"),
    ("chest", "xray"),
    ("chest", "ct"),
    ("abdomen", "ct"),
    ("spine", "xray"),
)
"""(organ, modality) of each image type, which gets three images: with 0, 1 and 2 findings."""
FINDINGS = (
    Lesion("left", "upper", "large", "bright"),
    Lesion("right", "lower", "small", "dark"),
    Lesion("right", "upper", "large", "dark"),
)


def write(folder: Path) -> None:
    """Write `probmed.json` and `images/<image type>/<n>.png`."""
    rows: list[dict[str, str]] = []
    for scene, (organ, modality) in enumerate(IMAGE_TYPES):
        kind = f"{organ}_{modality}"
        (folder / "images" / kind).mkdir(parents=True, exist_ok=True)
        for number in range(3):
            lesions = tuple(FINDINGS[(scene + n) % 3] for n in range(number))
            (folder / "images" / kind / f"{number + 1}.png").write_bytes(
                draw_phantom(Drawing(organ, modality, lesions))
            )
            for qa_type, question, answer in _image_questions(scene, number, organ, modality, lesions):
                rows.append(
                    {
                        "id": f"{kind}_{number + 1}",
                        "image": f"{kind}/{number + 1}.png",
                        "image_type": kind,
                        "qa_type": qa_type,
                        "question": question,
                        "answer": answer,
                    }
                )

    write_json(folder / "probmed.json", rows)


def _image_questions(
    scene: int, number: int, organ: str, modality: str, lesions: tuple[Lesion, ...]
) -> Iterator[tuple[str, str, str]]:
    other_organ, other_modality = (
        IMAGE_TYPES[(scene + 2) % len(IMAGE_TYPES)][0],
        ("mri", "ct", "xray")[(number + scene) % 3],
    )
    if other_modality == modality:
        other_modality = "mri" if modality != "mri" else "xray"
    yield "modality_gt", f"Was this picture drawn like {MODALITY_PHRASES[modality]}?", "yes"
    yield "modality_hallu", f"Was this picture drawn like {MODALITY_PHRASES[other_modality]}?", "no"
    yield "body_part_gt", f"Does the drawing show the {organ}?", "yes"
    yield (
        "body_part_hallu",
        f"Does the drawing show the {other_organ if other_organ != organ else 'spine'}?",
        "no",
    )
    yield (
        "abnormality",
        "Is there any round spot that the drawing without findings has not?",
        "yes" if lesions else "no",
    )
    absent = [finding for finding in FINDINGS if finding not in lesions]
    if not lesions:
        yield "entity_hallu", f"Does the drawing show a {absent[0].words}?", "no"
    for index, lesion in enumerate(lesions):
        made_up = Lesion(size=lesion.size, tone="dark" if lesion.tone == "bright" else "bright").words
        if any(made_up == drawn_lesion.words for drawn_lesion in lesions):
            made_up = "star-shaped spot"
        yield f"entity_gt_{index}", f"Does the drawing show a {lesion.words}?", "yes"
        yield f"entity_hallu_{index}", f"Does the drawing show a {made_up}?", "no"

    for index, lesion in enumerate(lesions):
        position = f"in the {lesion.level} {lesion.side} part of the picture"
        level = "lower" if lesion.level == "upper" else "upper"
        elsewhere = f"in the {level} {'right' if lesion.side == 'left' else 'left'} part of the picture"
        yield f"grounding_gt_{index}", f"Does the {lesion.words} lie {position}?", "yes"
        yield f"grounding_hallu_{index}", f"Does the {lesion.words} lie {elsewhere}?", "no"
