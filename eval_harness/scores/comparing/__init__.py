"""Tests between models and the ranks that follow."""
