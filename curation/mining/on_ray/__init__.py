"""Embedding and pair search on a Ray cluster."""
