"""Read which option a response chooses: `read_choice`.

docs/reader.md explains each stage and lists the rules.
"""

from eval_harness.reader.rules import Reading, official_reading, read_choice

__all__ = ["Reading", "official_reading", "read_choice"]
