"""Scores of a selection, ranked and grouped."""
