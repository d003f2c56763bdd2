"""Option orders of a `--permute` run, and the mapping from a choice among rotated options back to the question's order."""

from __future__ import annotations

from collections.abc import Sequence


def rotation(sample: int, options: int) -> int:
    """The number of positions by which a sample's options are rotated in a `--permute` run: sample s shows option s first."""
    return sample % options


def rotate_options(options: Sequence[str], turned: int) -> list[str]:
    """The options as shown: rotated by this number of positions."""
    return [*options[turned:], *options[:turned]]


def original_position(position: int, turned: int, options: int) -> int:
    """The position in the question of the option shown at `position`."""
    return (position + turned) % options
