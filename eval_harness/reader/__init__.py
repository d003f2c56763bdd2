"""Read which option a response chooses: `read_choice`.

The rules are one table (`rules.RULES`); docs/reader.md explains each stage.
"""

from eval_harness.reader.rules import RULES, Reading, official_reading, read_choice

__all__ = ["RULES", "Reading", "official_reading", "read_choice"]
