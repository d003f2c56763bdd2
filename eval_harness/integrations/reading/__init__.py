"""Reads what other harnesses answered."""
