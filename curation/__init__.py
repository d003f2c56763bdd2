"""Turn a folder of captioned images into a reviewed custom benchmark.

One package per stage, in order: `images` (index and table), `mining` (embeddings, pairs),
`writing` (questions, categories, patterns), `review`, `mediconfusion_export.py`, `report`
(quality). `custom_sets` builds ProbMed- and HALT-MedVQA-style sets from tables and questions;
`gmai` builds a GMAI-MMBench-style benchmark; `deidentify` prepares a hospital's files. The
commands are in `commands/`.
"""
