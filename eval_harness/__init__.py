"""Layer 2: prompts, models, the runner, answer extraction, scores and result files. Imports
dataset_builders only.
"""
