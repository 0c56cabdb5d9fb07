"""Random bits equal a cipher written out in Python, and depend on nothing but the key and the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit, vmap
from fiveloop.core.keys import fold_in, key, random_bits, split
from fiveloop.core.primitives.special import threefry2x32

WORD = 0xFFFFFFFF
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def cipher(k: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds."""
    schedule = [k[0], k[1], k[0] ^ k[1] ^ 0x1BD11BDA]
    a, b = (counter[0] + schedule[0]) & WORD, (counter[1] + schedule[1]) & WORD
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            a = (a + b) & WORD
            b = ((b << r) & WORD | b >> (32 - r)) ^ a
        a = (a + schedule[(group + 1) % 3]) & WORD
        b = (b + schedule[(group + 2) % 3] + group + 1) & WORD
    return a, b


def words(k: Any) -> tuple[int, int]:
    """A key as two integers."""
    high, low = np.asarray(k).tolist()
    return high, low


@pytest.mark.parametrize(
    ("k", "counter", "want"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((WORD, WORD), (WORD, WORD), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(k: Any, counter: Any, want: Any) -> None:
    assert cipher(k, counter) == want
    as_words = [np.uint32(w) for w in (*k, *counter)]
    high, low = threefry2x32((as_words[0], as_words[1]), (as_words[2], as_words[3]))
    assert (high.item(), low.item()) == want


def test_keys_hold_their_seed() -> None:
    assert words(key(7)) == (0, 7)
    assert words(key(2**40 + 1)) == (256, 1)
    assert words(key(-1)) == (WORD, WORD)
    assert words(key(2**64 - 1)) == (WORD, WORD)
    assert words(key(np.int64(2**40 + 1))) == (256, 1)
    assert words(key(np.int32(-1))) == (0, WORD)
    assert words(jit(key)(np.uint64(2**40 + 1))) == (256, 1)
    with pytest.raises(OverflowError) as e:
        key(2**64)
    assert "key: expected a seed of at most 64 bits" in str(e.value)


def test_bits_are_the_cipher_of_their_place() -> None:
    k = key(42)
    pairs = [cipher(words(k), (0, i)) for i in range(12)]
    got = np.asarray(random_bits(k, (3, 4)))
    assert got.reshape(-1).tolist() == [a ^ b for a, b in pairs]
    wide = np.asarray(random_bits(k, 12, np.uint64))
    assert wide.tolist() == [(a << 32) | b for a, b in pairs]
    for dtype, mask in ((np.uint8, 0xFF), (np.uint16, 0xFFFF)):
        narrow = random_bits(k, (12,), dtype)
        assert narrow.dtype == dtype
        assert np.asarray(narrow).tolist() == [(a ^ b) & mask for a, b in pairs]
    assert random_bits(k).shape == () and random_bits(k, (0, 3)).shape == (0, 3)


def test_split_and_fold() -> None:
    k = key(3)
    assert np.asarray(split(k)).tolist() == [list(cipher(words(k), (0, i))) for i in range(2)]
    grid = np.asarray(split(k, (2, 3)))
    assert grid.shape == (2, 3, 2)
    assert grid.reshape(-1, 2).tolist() == np.asarray(split(k, 6)).tolist()
    assert words(fold_in(k, 9)) == cipher(words(k), (0, 9))
    assert words(fold_in(k, np.uint32(9))) == words(fold_in(k, 9))
    assert words(fold_in(k, 2**40)) == cipher(words(k), (256, 0))
    assert words(jit(fold_in)(k, np.int32(9))) == words(fold_in(k, 9))


def test_batching_changes_no_bit() -> None:
    keys = split(key(0), 3)
    one_by_one = [np.asarray(random_bits(keys[i], (2, 2))) for i in range(3)]
    np.testing.assert_array_equal(
        np.asarray(vmap(lambda k: random_bits(k, (2, 2)))(keys)), one_by_one
    )
    turned = np.asarray(vmap(lambda k: random_bits(k, (2, 2)), in_axes=1)(keys.T))
    np.testing.assert_array_equal(turned, one_by_one)
    folded = np.asarray(vmap(fold_in, in_axes=(None, 0))(keys[0], np.arange(4, dtype=np.int32)))
    assert folded.tolist() == [list(words(fold_in(keys[0], i))) for i in range(4)]


def test_bits_are_even() -> None:
    x = np.asarray(random_bits(key(1), (10_000,)))
    ones = np.unpackbits(x.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.005
    assert len(np.unique(x)) > 9_990


def test_refusals() -> None:
    with pytest.raises(TypeError) as e:
        split(np.zeros(3, np.uint32))
    assert "split: expected a key, an array of two uint32 words, got u32[3]" in str(e.value)
    assert "test_keys.py" in str(e.value)
    with pytest.raises(
        TypeError, match="random_bits: expected an unsigned integer dtype, got int32"
    ):
        random_bits(key(0), (), np.int32)
    with pytest.raises(TypeError, match="key: expected `seed` to be an integer, got f32"):
        key(np.float32(1.0))
    with pytest.raises(ValueError, match="fold_in: expected `data` to be a scalar"):
        fold_in(key(0), np.arange(3))


@pytest.mark.parametrize(("count", "found"), [(8, 0), (9, 1)])
def test_bits_are_computed_once_for_all_that_is_made_of_them(count: int, found: int) -> None:
    text = jit(lambda k: random_bits(k, count)).lower(key(0)).as_text()
    assert text.count("optimization_barrier") == found
