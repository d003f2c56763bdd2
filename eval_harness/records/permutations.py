"""Rotate the options of a `--permute` run, and map a choice back to the original order."""

from __future__ import annotations

from collections.abc import Sequence


def rotation(sample: int, options: int) -> int:
    """Return how far the options of a sample are rotated; sample s shows option s first."""
    # With more samples than options the rotations repeat.
    return sample % options


def rotate_options(options: Sequence[str], rotated_by: int) -> list[str]:
    """Rotate the options to the left by `rotated_by` positions."""
    return [*options[rotated_by:], *options[:rotated_by]]


def original_position(position: int, rotated_by: int, options: int) -> int:
    """Return the original position of the option displayed at `position`."""
    return (position + rotated_by) % options
