"""From a folder of captioned images to a reviewed custom benchmark in the MediConfusion format; probes and hallucination tests from tables.

One package per stage, in order: `images` (index and table), `mining` (embeddings, pairs), `writing` (questions, categories, patterns),
`review`, `export.py`, `report` (quality); `custom_sets` makes ProbMed- and HALT-MedVQA-style sets. The commands are in `commands/`.
"""
