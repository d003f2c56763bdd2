"""Test whether a file of answers contains a slip: letters shifted by one, rows shifted by one, or
options in another order.

Nothing is assumed from the look of a file. A slip is reported only if undoing it makes the choices
agree with those of the other side far beyond chance.

See also: what it is worth (`causes.py`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from dataset_builders.schema import LETTERS

Positions = NDArray[np.int64]
"""Option position that each answer names (Q,); -1 and the number of options are just outside."""
UNREAD = -99
"""Position of an answer that names none."""
MAX_P = 1e-4
"""Largest p-value, corrected for all slips tried, at which a slip is reported."""
MIN_QUESTIONS = 10
"""Fewer common questions are not tested."""
ROWS, OTHER_ORDER = "rows shifted by one", "options in another order"
Order = Callable[[Sequence[str]], tuple[int, ...]]
"""From the options of a question to the true position of each named one, from -1 to the number of
options; UNREAD for none.
"""
_LEADING = re.compile(r"\W*(?:([A-Za-z])\b|(\d{1,2})\W*$)")


@dataclass(frozen=True)
class Slip:
    """A slip in the answers of one side.

    Attributes:
        side: 0 for A, 1 for B.
        row_shift: Rows by which the answers must be moved to undo it; 0 for none.
        order: How to undo it in the letters; None if the letters are right.
        names: What it is, in the order (rows, letters), as far as it has these parts.
        log_p: Natural logarithm of the p-value, corrected for the number of slips tried.
    """

    side: int
    row_shift: int
    order: Order | None
    names: tuple[str, ...]
    log_p: float


def named_position(response: object, choice: Sequence[int]) -> int:
    """Return the option position that an answer names, whether or not there is such an option.

    >>> named_position("B", [1]), named_position("E.", []), named_position("0", [])
    (1, 4, -1)
    >>> named_position("I cannot tell", [])
    -99
    """
    if len(choice) == 1:
        return int(choice[0])
    if choice or not isinstance(response, str):
        return UNREAD
    match = _LEADING.match(response)
    if match is None or (match[1] and match[1].upper() not in LETTERS):
        return UNREAD
    if match[1] == "I" and not response.strip(" .()").endswith("I"):  # "I cannot"
        return UNREAD
    return LETTERS.index(match[1].upper()) if match[1] else int(match[2]) - 1


def find_slips(
    side: int,
    named_by_shift: dict[int, Positions],
    chosen: Positions,
    other_positions: Positions,
    options: Sequence[Sequence[str]],
) -> list[Slip]:
    """Test the slips of one side against the choices of the other on the same questions.

    Two tests must both reject: that the undone choices agree with the other side's no more often
    than unrelated answers that choose each position as often (permutation test, stratified by the
    number of options), and that undoing makes as many choices differ as agree (sign test).

    Args:
        side: 0 for A, 1 for B.
        named_by_shift: Row shift -> positions that this side's answers name (Q,) if its rows are
            moved by so many.
        chosen: Positions that this side's answers choose as they stand (Q,), UNREAD if none.
        other_positions: Positions that the other side chooses (Q,), UNREAD if none.
        options: Option texts of each question.

    Returns:
        The slips below MAX_P, the clearest first.
    """
    if len(chosen) < MIN_QUESTIONS:
        return []
    n_options = np.array([len(texts) for texts in options])
    tried_orders = letter_orders(options, named_by_shift[0])
    # Both sides are tested, hence the factor of 2.
    log_tried = np.log(2 * len(named_by_shift) * (len(tried_orders) + 2))
    slips: list[Slip] = []
    seen = {named_by_shift[0].tobytes()} if (named_by_shift[0] == chosen).all() else set()
    for shift, positions in named_by_shift.items():
        fixed_order, log_orders = _fixed_order(positions, other_positions, n_options)
        tried = [("", None, 0.0), *((*pair, 0.0) for pair in tried_orders), (OTHER_ORDER, fixed_order, log_orders)]
        for name, order, log_choices in tried:
            undone = positions if order is None else apply_order(positions, order, options)
            if (shift == 0 and order is None) or undone.tobytes() in seen:
                continue
            seen.add(undone.tobytes())
            log_p = log_tried + log_choices + agreement_log_p(undone, chosen, other_positions, n_options)
            if log_p <= np.log(MAX_P):
                names = (ROWS,) * bool(shift) + (name,) * (order is not None)
                slips.append(Slip(side, shift, order, names, log_p))
    return sorted(slips, key=lambda slip: slip.log_p)


def apply_order(positions: Positions, order: Order, options: Sequence[Sequence[str]]) -> Positions:
    """Replace the position that each answer names by the one that `order` gives for it."""
    return np.array(
        [
            order(texts)[position + 1] if -1 <= position <= len(texts) else UNREAD
            for position, texts in zip(positions.tolist(), options, strict=True)
        ]
    )


def _shift(step: int, texts: Sequence[str]) -> tuple[int, ...]:
    """Undo a shift of letters; one beyond the last option is the first."""
    return tuple((at + step) % len(texts) for at in range(-1, len(texts) + 1))


def _alphabetical(texts: Sequence[str]) -> tuple[int, ...]:
    """Undo letters of the options in alphabetical order."""
    return (UNREAD, *sorted(range(len(texts)), key=lambda at: texts[at]), UNREAD)


def letter_orders(options: Sequence[Sequence[str]], positions: Positions) -> list[tuple[str, Order]]:
    """Return (name, order) of the slips in letters that are tried."""
    shifted = "letters shifted by one"
    if max(map(len, options)) == 2:  # the same for two options
        shifted += f", or {OTHER_ORDER}"
    return [
        (shifted, partial(_shift, -1)),
        ("options counted from 0" if (positions == -1).any() else shifted, partial(_shift, 1)),
        ("numbers instead of letters", lambda texts: (UNREAD, *range(len(texts)), UNREAD)),
        (OTHER_ORDER, _alphabetical),
    ]


def _fixed_order(positions: Positions, other_positions: Positions, n_options: NDArray[np.int64]) -> tuple[Order, float]:
    """Return the order, one for each number of options, in which the choices agree most; and the
    logarithm of the number of orders that it was chosen from.
    """
    order_of: dict[int, tuple[int, ...]] = {}
    for k in np.unique(n_options).tolist():
        rows = (n_options == k) & (positions >= 0) & (positions < k) & (other_positions >= 0)
        counts = np.zeros((k, k))
        np.add.at(counts, (positions[rows], other_positions[rows]), 1)
        order_of[k] = (UNREAD, *optimize.linear_sum_assignment(counts, maximize=True)[1].tolist(), UNREAD)
    log_orders = sum(float(special.gammaln(k + 1)) for k in order_of)
    return lambda texts: order_of.get(len(texts), (UNREAD, *range(len(texts)), UNREAD)), log_orders


def agreement_log_p(
    undone: Positions, chosen: Positions, other_positions: Positions, n_options: NDArray[np.int64]
) -> float:
    """Return the logarithm of the larger p-value of the two tests of `find_slips`."""
    matches, matched_before = undone == other_positions, (chosen == other_positions) & (chosen != UNREAD)
    gained, lost = int((matches & ~matched_before).sum()), int((matched_before & ~matches).sum())
    if gained <= lost:
        return 0.0
    excess = variance = 0.0
    for k in np.unique(n_options):
        rows = (n_options == k) & (undone >= 0) & (undone < k) & (other_positions >= 0)
        n = int(rows.sum())
        if n < 2:
            continue
        # Mean and variance of the matches if one side's answers are permuted.
        a, b = (np.bincount(positions[rows], minlength=int(k)).astype(float) for positions in (undone, other_positions))
        products = a * b
        excess += float(matches[rows].sum() - products.sum() / n)
        squares = products.sum() - (products * (a + b)).sum() / n + (products.sum() / n) ** 2
        variance += float(squares / (n - 1))
    if variance <= 0:
        return 0.0
    related = float(stats.norm.logsf((excess - 0.5) / np.sqrt(variance)))
    return max(related, float(stats.binom.logsf(gained - 1, gained + lost, 0.5)))
