"""Shingling: what two articles have in common, counted in runs of four words.

After A. Broder, "On the resemblance and containment of documents" (1997), which the Nova paper names as the method
behind its de-duping step (section 2, Figure 1).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from nova_assets.examples.news.text import words

WIDTH = 4
"""Words in one shingle."""

SKETCH_SIZE = 256
"""Shingles kept in a sketch. Articles of fewer shingles are compared exactly, longer ones by a sample of this size."""


def shingles(text: str, width: int = WIDTH) -> frozenset[int]:
    """The set of a text's shingles, each as a signed 64-bit digest. A text of fewer words is one shingle."""
    found = words(text)
    if not found:
        return frozenset()
    starts = range(max(1, len(found) - width + 1))
    return frozenset(_digest(" ".join(found[start : start + width])) for start in starts)


def shingle_hash(found: frozenset[int]) -> str:
    """One hash of a whole set of shingles: equal exactly when two articles have the same shingles.

    Order, repetition, case, punctuation and white space make no difference to it; any other word does.
    """
    packed = b"".join(value.to_bytes(8, "big", signed=True) for value in sorted(found))
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def sketch(found: frozenset[int], size: int = SKETCH_SIZE) -> list[int]:
    """The `size` least digests of a set: a fair sample of it, the same on every machine."""
    return sorted(found)[:size]


def resemblance(one: Sequence[int], other: Sequence[int], size: int = SKETCH_SIZE) -> float:
    """How alike two articles are, from 0 to 1 (Jaccard), judged by their sketches.

    Exact while both articles together have at most `size` shingles; beyond that an estimate whose standard error is at
    most 0.5 / sqrt(size), which is 0.03.
    """
    left, right = set(one), set(other)
    union = sorted(left | right)[:size]
    if not union:
        return 0.0
    return sum(1 for value in union if value in left and value in right) / len(union)


def near_pairs(sketches: Mapping[str, Sequence[int]], at_least: float) -> dict[tuple[str, str], float]:
    """The pairs of articles, by name, whose resemblance is `at_least` that much. Names in a pair are in order.

    Only pairs that share a shingle in their sketches are compared: the others have nothing in common.
    """
    carriers: dict[int, list[str]] = defaultdict(list)
    for name in sorted(sketches):
        for value in set(sketches[name]):
            carriers[value].append(name)
    candidates = {pair for names in carriers.values() for pair in combinations(names, 2)}
    judged = ((pair, resemblance(sketches[pair[0]], sketches[pair[1]])) for pair in candidates)
    return {pair: alike for pair, alike in sorted(judged) if alike >= at_least}


def _digest(shingle: str) -> int:
    return int.from_bytes(hashlib.blake2b(shingle.encode(), digest_size=8).digest(), "big", signed=True)
