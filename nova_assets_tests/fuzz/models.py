"""Merge models of random histories."""

from __future__ import annotations

import random
from collections.abc import Sequence

import nova_assets as nova
from nova_assets.model.merge import MergeModel
from nova_assets_tests.fuzz.naive import Column, Kind, Model, NaiveChannel
from nova_assets_tests.fuzz.values import COMBINERS, ORDER_TYPES, ColumnType


def merge_model(model: Model, columns: tuple[Column, ...]) -> MergeModel:
    """The model as users write it."""
    names = {c.identity: c.name for c in columns}
    key = [names[c] for c in model.key]
    order_by = None if model.order_by is None else names[model.order_by]
    if model.kind == "upsert":
        return nova.Upsert(key=key, order_by=order_by)
    if model.kind == "keyed":
        return nova.Keyed(key=key, combine={names[c]: f for c, f in model.combine.items()}, order_by=order_by)
    return nova.Multiset() if model.kind == "multiset" else nova.Append()


def draw_combiners(rng: random.Random, columns: Sequence[Column]) -> dict[int, str]:
    found = {}
    for column in columns:
        fitting = [f for f in COMBINERS if _fits(f, column.type)]
        if fitting and rng.random() < 0.8:
            found[column.identity] = rng.choice(fitting)
    return found


def draw_other_model(
    rng: random.Random, naive: NaiveChannel, kinds: Sequence[Kind], possible_keys: Sequence[ColumnType]
) -> Model:
    """Another model of the channel: another kind, another key, or other roles of its columns."""
    kind = rng.choice(kinds)
    if kind in ("append", "multiset"):
        return Model(kind)
    partition = [c.identity for c in naive.columns if c.identity == naive.partition]
    candidates = [c.identity for c in naive.columns if c.type in possible_keys and c.identity not in partition]
    own = [c for c in (naive.declared.key or naive.model.key) if c not in partition]
    if not own or (candidates and rng.random() < 0.6):
        own = rng.sample(candidates, min(len(candidates), rng.choice([1, 1, 2])))
    key = (*own, *partition)
    if not key:
        return Model("append")
    others = [c for c in naive.columns if c.identity not in key]
    ordered = [c for c in others if c.type in ORDER_TYPES]
    order_by = rng.choice(ordered).identity if ordered and rng.random() < 0.4 else None
    combined = [c for c in others if c.identity != order_by]
    return Model(kind, key, order_by, draw_combiners(rng, combined) if kind == "keyed" else {})


def model_of_one_block(rng: random.Random, naive: NaiveChannel) -> Model | None:
    """Another merge model that a single delta may have; None if there is none."""
    model = naive.model
    if model.kind in ("append", "multiset"):
        return None if model.kind == "append" else Model("append")
    if rng.random() < 0.5 and (model.kind == "keyed" or model.order_by is not None):
        return Model("upsert", model.key)
    free = [c for c in naive.columns if c.identity not in naive.fixed and _fits("max", c.type)]
    return Model("keyed", model.key, None, {rng.choice(free).identity: "max"}) if free else None


def _fits(combiner: str, type_: ColumnType) -> bool:
    if combiner == "sum":
        return type_.summable
    if combiner.startswith("bool"):
        return type_.ddl == "boolean"
    return type_ in ORDER_TYPES
