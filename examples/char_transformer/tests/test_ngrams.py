"""The n-gram models: proper distributions, equal to a slow twin, and losses that fall with the order."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from char_transformer.data import load_corpus
from char_transformer.ngrams import discounts, held_out_nats, train_ngrams


def slow_probability(
    text: Sequence[int], context: tuple[int, ...], target: int, num_symbols: int
) -> float:
    """Compute the same estimate from dictionaries, one probability at a time."""
    p = 1.0 / num_symbols
    order = len(context) + 1
    for length in range(1, order + 1):
        counts = Counter(tuple(text[i : i + length]) for i in range(len(text) - length + 1))
        for longer in range(order, length, -1):
            grams = {tuple(text[i : i + longer]) for i in range(len(text) - longer + 1)}
            if longer == length + 1:
                counts = Counter(gram[1:] for gram in grams)
        taken = discounts(np.array(list(counts.values())))
        past = context[order - length :]
        same = {gram: c for gram, c in counts.items() if gram[:-1] == past}
        if same:
            total = sum(same.values())
            count = same.get((*past, target), 0)
            passed_down = sum(taken[min(c, 3)] for c in same.values())
            p = (count - taken[min(count, 3)] + passed_down * p) / total
    return p


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_equal_those_of_a_slow_twin(order: int) -> None:
    random = np.random.default_rng(order)
    text = random.integers(0, 5, 300) * random.integers(0, 2, 300)
    other = random.integers(0, 6, 40)
    model = train_ngrams(text, order=order, num_symbols=6)
    p = model.probabilities(other)
    for i in range(order - 1, 40):
        context = tuple(other[i - order + 1 : i].tolist())
        assert p[i] == pytest.approx(
            slow_probability(text.tolist(), context, int(other[i]), 6), rel=1e-12
        )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_of_all_next_characters_add_up_to_one(order: int) -> None:
    text = np.random.default_rng(0).integers(0, 7, 2000) // 2
    model = train_ngrams(text, order=order, num_symbols=7)
    seen, unseen = text[100 : 100 + order - 1], np.full(order - 1, 6)
    for past in (seen, unseen):
        p = [model.probabilities(np.append(past, target))[-1] for target in range(7)]
        assert min(p) > 0.0
        assert sum(p) == pytest.approx(1.0)


def test_the_first_characters_are_judged_by_the_past_they_have() -> None:
    text = np.random.default_rng(1).integers(0, 4, 500)
    model = train_ngrams(text, order=3, num_symbols=4)
    assert len(model.probabilities(text[:2])) == 2
    assert (model.probabilities(text[:50])[:2] == model.probabilities(text[:2])).all()


def test_a_text_with_no_repeats_still_gives_proper_probabilities() -> None:
    model = train_ngrams(np.arange(6), order=3, num_symbols=8)
    p = [model.probabilities(np.array([0, 1, target]))[-1] for target in range(8)]
    assert sum(p) == pytest.approx(1.0)
    assert p[2] == max(p)


def test_an_order_that_does_not_fit_is_an_error_that_says_so() -> None:
    with pytest.raises(
        ValueError, match=r"fit 63 bits, and 100 \*\* 10 was given; take a smaller order"
    ):
        train_ngrams(np.arange(20), order=10, num_symbols=100)


def test_losses_on_the_real_text_fall_with_the_order() -> None:
    corpus = load_corpus()
    nats = held_out_nats(corpus.train, corpus.held_out, num_symbols=len(corpus.vocabulary))
    losses = list(nats.values())
    assert list(nats) == [1, 2, 3, 4, 5]
    assert losses == sorted(losses, reverse=True)
    assert 3.0 < losses[0] < 3.5
    assert 1.5 < losses[2] < 2.0
    assert 1.0 < losses[4] < 1.4
