"""Embed images with two encoders, and search for pairs that only one of them tells apart."""
