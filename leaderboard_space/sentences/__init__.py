"""Every sentence that the board computes, each from the numbers it speaks of and nothing else, so that a test can hold it against them.

See also: where the numbers come from (`standings.py`, `findings.py`), HTML (`views/`).
"""

from leaderboard_space.sentences.captions import *  # noqa: F403
from leaderboard_space.sentences.comparisons import *  # noqa: F403
from leaderboard_space.sentences.headlines import *  # noqa: F403
from leaderboard_space.sentences.rows import *  # noqa: F403
