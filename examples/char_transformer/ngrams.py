"""Character n-gram models, for comparison: interpolated Kneser-Ney with the modified discounts.

The estimates are those of Chen and Goodman (1999, section 3): each level takes a discount off its counts
and gives what it took to the level below; the levels below the top count in how many *different* contexts
a gram was seen. It is the strongest of the classical smoothings, so that being better than it means something.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Level:
    """The grams of one length: their discounted counts, and what each context gives to the level below.

    A gram is coded as the number its ids are the digits of; both tables of codes are sorted.
    """

    grams: Codes
    discounted: Floats
    contexts: Codes
    totals: Floats
    passed_down: Floats


@dataclass(frozen=True)
class NGramModel:
    """The probability of each character given the `order - 1` before it."""

    order: int
    num_symbols: int
    levels: tuple[Level, ...]

    def probabilities(self, ids: npt.NDArray[np.integer]) -> Floats:
        """Give the probability of each id given the ids before it; the first ones have a shorter past."""
        p = np.full(len(ids), 1.0 / self.num_symbols)
        for length, level in enumerate(self.levels[: len(ids)], 1):
            codes = gram_codes(ids, length, self.num_symbols)
            discounted = look_up(level.grams, level.discounted, codes, missing=0.0)
            context = codes // self.num_symbols
            total = look_up(level.contexts, level.totals, context, missing=1.0)
            passed_down = look_up(level.contexts, level.passed_down, context, missing=1.0)
            longer_past = slice(length - 1, None)
            p[longer_past] = (discounted + passed_down * p[longer_past]) / total
        return p


def train_ngrams(ids: npt.NDArray[np.integer], *, order: int, num_symbols: int) -> NGramModel:
    """Count the grams of a text, and smooth the counts."""
    if num_symbols**order > np.iinfo(np.int64).max:
        raise ValueError(
            f"train_ngrams: num_symbols ** order has to fit 63 bits, and {num_symbols} ** {order} "
            "was given; take a smaller order"
        )
    grams, counts = np.unique(gram_codes(ids, order, num_symbols), return_counts=True)
    levels = [smooth(grams, counts, num_symbols)]
    for length in range(order - 1, 0, -1):
        # How many different characters come before a gram: one for each longer gram that ends with it.
        grams, counts = np.unique(grams % num_symbols**length, return_counts=True)
        levels.append(smooth(grams, counts, num_symbols))
    return NGramModel(order, num_symbols, tuple(reversed(levels)))


def gram_codes(ids: npt.NDArray[np.integer], length: int, num_symbols: int) -> Codes:
    """Code the gram of this length at each position of a text."""
    codes = np.zeros(len(ids) - length + 1, np.int64)
    for i in range(length):
        codes = codes * num_symbols + ids[i : len(ids) - length + 1 + i]
    return codes


def smooth(grams: Codes, counts: npt.NDArray[np.int64], num_symbols: int) -> Level:
    """Take the discount off each count, and add up by context what was taken."""
    taken = discounts(counts)[np.minimum(counts, 3)]
    contexts, first = np.unique(grams // num_symbols, return_index=True)
    return Level(
        grams,
        counts - taken,
        contexts,
        np.add.reduceat(counts, first).astype(np.float64),
        np.add.reduceat(taken, first),
    )


def discounts(counts: npt.NDArray[np.int64]) -> Floats:
    """Estimate the discounts of counts 0, 1, 2, and 3 or more, from how often each count occurs."""
    occur = np.array([np.sum(counts == c) for c in range(5)], np.float64)
    # A small text may lack some counts, and the estimates are then undefined: half a count is a fair guess.
    if not occur[1:4].all():
        return np.array([0.0, 0.5, 0.5, 0.5])
    base = occur[1] / (occur[1] + 2 * occur[2])
    estimates = [c - (c + 1) * base * occur[c + 1] / occur[c] for c in (1, 2, 3)]
    return np.array([0.0, *np.clip(estimates, 0.0, [1.0, 2.0, 3.0])])


def look_up(keys: Codes, values: Floats, queries: Codes, *, missing: float) -> Floats:
    """Give the value beside each query in a sorted table, or `missing`."""
    found = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[found] == queries, values[found], missing)


def held_out_nats(
    train: npt.NDArray[np.integer],
    held_out: npt.NDArray[np.integer],
    *,
    num_symbols: int,
    orders: Sequence[int] = (1, 2, 3, 4, 5),
) -> dict[int, float]:
    """Give the loss of each n-gram model in nats per held-out character, the first character left out.

    It is left out because the transformer predicts from a character before, and so has none for the first.
    """
    models = [train_ngrams(train, order=order, num_symbols=num_symbols) for order in orders]
    return {m.order: float(-np.log(m.probabilities(held_out)[1:]).mean()) for m in models}
