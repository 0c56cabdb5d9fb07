"""The text: each paragraph once, held out in whole blocks, and batches that a seed decides."""

from itertools import islice
from pydoc_data.topics import topics as python_topics

import numpy as np
import pytest
from char_transformer.data import (
    BLOCK_CHARACTERS,
    batches,
    blocks_of,
    distinct_paragraphs,
    held_out_windows,
    load_corpus,
)


def test_a_paragraph_that_stands_in_two_topics_is_kept_where_it_stands_first() -> None:
    topics = {"b": "Title\n\nsame  text\n\nown", "a": "\nsame text   \n\nother\n"}
    assert distinct_paragraphs(topics) == ["same text", "other", "Title", "own"]


def test_indentation_and_line_breaks_inside_a_paragraph_stay() -> None:
    assert distinct_paragraphs({"a": "   x = 1  \n   y = 2\n\n\n\nz"}) == [
        "   x = 1\n   y = 2",
        "z",
    ]


def test_blocks_hold_all_paragraphs_in_order() -> None:
    paragraphs = ["aaa", "bb", "cccc", "d"]
    blocks = blocks_of(paragraphs, characters=6)
    assert blocks == ["aaa\n\nbb\n\n", "cccc\n\n", "d\n\n"]


def test_the_corpus_is_real_english_text_of_the_expected_size() -> None:
    corpus = load_corpus()
    total = len(corpus.train) + len(corpus.held_out)
    assert 300_000 < total < 700_000
    assert 0.08 < len(corpus.held_out) / total < 0.13
    assert "the " in corpus.decode(corpus.train[:5000])
    assert 80 < len(corpus.vocabulary) < 256


def test_encode_and_decode_are_inverse() -> None:
    corpus = load_corpus()
    text = "The value of an expression."
    assert corpus.decode(corpus.encode(text)) == text


def test_no_held_out_paragraph_is_in_the_train_text() -> None:
    corpus = load_corpus()
    train = " ".join(corpus.decode(corpus.train).split())
    held_out = [" ".join(p.split()) for p in corpus.decode(corpus.held_out).split("\n\n")]
    long = [p for p in held_out if len(p) > 100]
    assert len(long) > 50
    assert [p for p in long if p in train] == []


def test_the_held_out_text_is_whole_blocks_from_all_over_the_text() -> None:
    corpus = load_corpus()
    blocks = blocks_of(distinct_paragraphs(python_topics))
    held_out = corpus.decode(corpus.held_out)
    inside = [i for i, block in enumerate(blocks) if block in held_out]
    assert "".join(blocks[i] for i in inside) == held_out
    assert set(np.diff(inside)) == {10}
    assert all(len(blocks[i]) >= BLOCK_CHARACTERS for i in inside[:-1])


def test_the_same_seed_gives_the_same_batches_and_another_seed_gives_others() -> None:
    ids = np.arange(1000, dtype=np.int32)
    one, same, other = (
        np.stack(list(islice(batches(ids, batch=4, context=16, seed=seed), 40)))
        for seed in (1, 1, 2)
    )
    assert (one == same).all()
    assert (one != other).any()
    assert one.shape == (40, 4, 17)
    assert one.dtype == np.int32


def test_an_epoch_shows_each_target_once() -> None:
    ids = np.arange(16 * 40 + 1, dtype=np.int32)
    epoch = np.stack(list(islice(batches(ids, batch=1, context=16, seed=0), 39)))
    targets = epoch[..., 1:].ravel()
    assert len(set(targets.tolist())) == len(targets)
    assert (np.diff(epoch, axis=-1) == 1).all()


def test_a_text_too_short_for_one_batch_is_an_error_that_says_so() -> None:
    with pytest.raises(
        ValueError, match=r"at least .* = 1088 ids was expected, and 900 were given"
    ):
        next(batches(np.zeros(900, np.int32), batch=16, context=64, seed=0))


@pytest.mark.parametrize("length", [17, 18, 33, 100, 121])
@pytest.mark.parametrize("stride", [4, 8, 16])
def test_held_out_windows_count_every_character_but_the_first_once(
    length: int, stride: int
) -> None:
    ids = np.arange(length, dtype=np.int32)
    windows, weights = held_out_windows(ids, context=16, stride=stride)
    counted = windows[:, 1:][weights == 1.0]
    assert sorted(counted.tolist()) == list(range(1, length))
    past = np.broadcast_to(np.arange(1, 17), weights.shape)[weights == 1.0]
    assert (past >= np.minimum(counted, 16 - stride)).all()
