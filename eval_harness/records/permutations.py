"""Orders of options: how a `--permute` run turns them, and the way back from a choice among turned options."""

from __future__ import annotations

from collections.abc import Sequence


def rotation(sample: int, options: int) -> int:
    """By how many positions the options of a sample are turned in a `--permute` run: sample s shows option s first."""
    return sample % options


def shown(options: Sequence[str], turned: int) -> list[str]:
    """The options as shown: turned by so many positions, in a circle."""
    return [*options[turned:], *options[:turned]]


def original(position: int, turned: int, options: int) -> int:
    """The position in the question of the option shown at `position`."""
    return (position + turned) % options
