"""Every model type that transformers' `AutoModelForImageTextToText` knows: those that `families.py` tries and holds against naive loops,
those that are refused for what their class takes or writes, and the rest, which are untested.

    PYTHONPATH=. python benchmarks/models/model_types.py
"""

from __future__ import annotations


def main() -> None:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    from eval_harness.models.local.pretrained import unfit_class
    from tests.eval_harness.models.tiny_families import FAMILIES

    compared = {getattr(transformers, f"{family.name}Config").model_type for family in FAMILIES.values()}

    rows: dict[str, list[str]] = {
        "tried by families.py": [],
        "refused by their class": [],
        "not ruled out, untested": [],
    }
    for model_type, class_name in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items():
        try:
            model_class = getattr(transformers, class_name)
        except (AttributeError, ImportError) as error:
            rows["refused by their class"].append(f"{model_type}: {str(error).strip().splitlines()[0]}")
            continue
        reason = unfit_class(model_class)
        if model_type in compared:
            rows["tried by families.py"].append(model_type)
        elif reason:
            rows["refused by their class"].append(f"{model_type}: {reason}")
        else:
            rows["not ruled out, untested"].append(model_type)
    for heading, found in rows.items():
        print(f"{heading} ({len(found)}): {', '.join(found)}")


if __name__ == "__main__":
    main()
