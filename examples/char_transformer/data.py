"""English text that every Python carries, as ids of characters: train and held-out parts, and batches.

The text is the standard library's `pydoc_data.topics`, the pages behind `help()`. They differ a little
from one Python to the next, and so do the numbers that this example prints.

Some pages hold others word for word ("specialnames" holds "attribute-access", "try" is part of
"compound"). If such a paragraph stood in both parts, a model that remembers would look like one that
knows English, so each paragraph is kept once, where it stands first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pydoc_data.topics import topics as python_topics

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]

BLOCK_CHARACTERS = 4000
HELD_OUT_EVERY = 10


@dataclass(frozen=True)
class Corpus:
    """Ids of the train and held-out characters; character `i` of the vocabulary has the id `i`."""

    vocabulary: str
    train: Ids
    held_out: Ids

    def encode(self, text: str) -> Ids:
        """Give the id of each character of `text`."""
        return encode(text, self.vocabulary)

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of some ids."""
        return "".join(self.vocabulary[i] for i in ids)


def distinct_paragraphs(topics: Mapping[str, str]) -> list[str]:
    """Give the paragraphs of all topics in the order of the topics' names, each paragraph once."""
    seen: set[str] = set()
    paragraphs = []
    for name in sorted(topics):
        for paragraph in "\n".join(map(str.rstrip, topics[name].splitlines())).split("\n\n"):
            words = " ".join(paragraph.split())
            if words and words not in seen:
                seen.add(words)
                paragraphs.append(paragraph.strip("\n"))
    return paragraphs


def blocks_of(paragraphs: Iterable[str], characters: int = BLOCK_CHARACTERS) -> list[str]:
    """Join neighbouring paragraphs into blocks of at least so many characters; the last may be shorter."""
    blocks = [""]
    for paragraph in paragraphs:
        if len(blocks[-1]) >= characters:
            blocks.append("")
        blocks[-1] += paragraph + "\n\n"
    return blocks


def load_corpus(topics: Mapping[str, str] = python_topics) -> Corpus:
    """Read the topics, and hold out every tenth block of about a page.

    A block is far longer than the context of any model here, and it is held out whole: no model has
    seen a neighbour of a held-out character, the few at the edges of a block aside.
    """
    parts = {True: "", False: ""}
    for i, block in enumerate(blocks_of(distinct_paragraphs(topics))):
        parts[i % HELD_OUT_EVERY == HELD_OUT_EVERY // 2] += block
    vocabulary = "".join(sorted(set(parts[True] + parts[False])))
    return Corpus(vocabulary, encode(parts[False], vocabulary), encode(parts[True], vocabulary))


def encode(text: str, vocabulary: str) -> Ids:
    """Give the id of each character of `text`."""
    ids = {character: i for i, character in enumerate(vocabulary)}
    return np.array([ids[character] for character in text], np.int32)


def batches(ids: Ids, *, batch: int, context: int, seed: int) -> Iterator[Ids]:
    """Yield batches of windows of `context + 1` ids for ever; the same seed gives the same batches.

    In each epoch the text is cut anew at a random phase and its windows are shuffled, so that every
    character is a target once an epoch, each time with another past. A last, smaller batch is left out.
    """
    starts = len(ids) - context
    if starts < batch * context:
        raise ValueError(
            f"batches: a text of at least batch * context + context = {(batch + 1) * context} "
            f"ids was expected, and {len(ids)} were given; take a smaller batch or context"
        )
    random = np.random.default_rng(seed)
    while True:
        first = np.arange(
            random.integers(min(context, starts - batch * context + 1)), starts, context
        )
        random.shuffle(first)
        for i in range(0, len(first) - batch + 1, batch):
            yield windows_at(ids, first[i : i + batch], context)


def windows_at(ids: Ids, first: npt.NDArray[np.integer], context: int) -> Ids:
    """Give one window of `context + 1` ids from each of the first positions."""
    windows: Ids = ids[first[:, None] + np.arange(context + 1)]
    return windows


def held_out_windows(ids: Ids, *, context: int, stride: int) -> tuple[Ids, npt.NDArray[np.float32]]:
    """Cut a text into overlapping windows, and weigh their targets so that each character counts once.

    Windows start `stride` apart. A target counts in the window that shows it the longest past, so that
    with a stride below `context` all but the first targets are judged by at least `context - stride`
    characters. The last window ends with the text.
    """
    last = len(ids) - 1 - context
    first = np.append(np.arange(0, last, stride), last)
    weights = np.ones((len(first), context), np.float32)
    for row, (before, start) in enumerate(pairwise(first), 1):
        weights[row, : before + context - start] = 0.0
    return windows_at(ids, first, context), weights
