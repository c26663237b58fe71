"""A small project for the tests of the shell. Its tasks hand on what they get, so any engine can run them."""

from __future__ import annotations

import os
from typing import Any

import nova_assets as nova

ORDERS = "id bigint, item string, price double"

orders = nova.Channel("orders", schema=ORDERS)
stock = nova.Channel("stock", merge=nova.Upsert(key="item"), schema="item string, count bigint")
archive = nova.Channel("archive", schema=ORDERS)
latest = nova.Channel("latest", merge=nova.Upsert(key="item"), schema="item string, count bigint")


@nova.task(consumes=[nova.new(orders), nova.matching(stock, keys_of=orders, on="item")], produces=nova.delta("checked"))
def check_till(orders: Any, stock: Any) -> Any:
    print("counting the till")
    if os.environ.get("TILL_IS_EMPTY"):
        raise ValueError("the till is empty")
    return orders


@nova.task(consumes=nova.new("checked"), produces=nova.delta(archive), skip_if_no_new=True)
def keep(checked: Any) -> Any:
    return checked


@nova.task(consumes=nova.all(stock), produces=nova.base(latest))
def copy_stock(stock: Any) -> Any:
    return stock


sell = nova.bind(nova.Workflowette("sell", [check_till, keep]), when=nova.on_data(orders))
take_stock = nova.bind(nova.Workflowette("take_stock", [copy_stock]))
project = nova.Project([sell, take_stock])
