"""Similarity of articles, by shingles: sequences of four words.

After A. Broder, "On the resemblance and containment of documents" (1997), which the Nova paper names as the method
behind its de-duping step (section 2, Figure 1).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from examples.news.text import split_words

WIDTH = 4
"""Number of words in one shingle."""

SKETCH_SIZE = 256
"""Maximum number of shingles in a sketch. Articles with fewer shingles are compared exactly, others by a sample."""


def shingles(text: str, width: int = WIDTH) -> frozenset[int]:
    """Shingles of a text, as signed 64-bit digests. A text with fewer than ``width`` words is one shingle."""
    words = split_words(text)
    if not words:
        return frozenset()
    starts = range(max(1, len(words) - width + 1))
    return frozenset(_digest(" ".join(words[start : start + width])) for start in starts)


def hash_shingles(shingle_digests: frozenset[int]) -> str:
    """Hash of a set of shingles. Two articles have the same hash if they have the same shingles.

    Order, repetition, case, punctuation and white space do not change the hash. Another word does.
    """
    packed = b"".join(value.to_bytes(8, "big", signed=True) for value in sorted(shingle_digests))
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def sample_shingles(shingle_digests: frozenset[int], size: int = SKETCH_SIZE) -> list[int]:
    """Sketch of a text: the ``size`` least digests, a fair sample that is the same on every machine."""
    return sorted(shingle_digests)[:size]


def resemblance(one: Sequence[int], other: Sequence[int], size: int = SKETCH_SIZE) -> float:
    """Similarity of two articles from 0 to 1 (Jaccard), computed from their sketches.

    The result is exact if both articles together have at most ``size`` shingles. Otherwise it is an estimate with a
    standard error of at most 0.5 / sqrt(size), which is 0.03.
    """
    left, right = set(one), set(other)
    union = sorted(left | right)[:size]
    if not union:
        return 0.0
    return sum(1 for value in union if value in left and value in right) / len(union)


def find_similar_pairs(sketches: Mapping[str, Sequence[int]], min_resemblance: float) -> dict[tuple[str, str], float]:
    """Pairs of articles with at least this resemblance, and their resemblance. The names in a pair are in order.

    Only pairs that share a shingle in their sketches are compared, because all other pairs have nothing in common.
    """
    carriers: dict[int, list[str]] = defaultdict(list)
    for name in sorted(sketches):
        for value in set(sketches[name]):
            carriers[value].append(name)
    candidates = {pair for names in carriers.values() for pair in combinations(names, 2)}
    judged = ((pair, resemblance(sketches[pair[0]], sketches[pair[1]])) for pair in candidates)
    return {pair: alike for pair, alike in sorted(judged) if alike >= min_resemblance}


def _digest(shingle: str) -> int:
    return int.from_bytes(hashlib.blake2b(shingle.encode(), digest_size=8).digest(), "big", signed=True)
