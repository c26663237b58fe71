"""One of several processes that insert, read and compact while their store answers badly. Prints what it was told."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import nova_assets as nova
from nova_assets.store.store import Store

channel = nova.Channel("c", merge=nova.Upsert(key="k"), schema="k bigint NOT NULL, v string")


def opened(folder: Path) -> Store:
    return nova.open(nova.Project(channels=[channel]), f"sqlite:///{folder}/c.db", "s3://lake/wh")


def say(what: str, **more: object) -> None:
    print(json.dumps({"what": what, **more}), flush=True)


def patiently(what: str, act: object, until: float) -> bool:
    """Try until it is acknowledged. Each error is told with its code and its text."""
    while time.monotonic() < until:
        try:
            act()  # type: ignore[operator]
        except nova.NovaError as error:
            say("error", of=what, code=error.code, text=str(error))
        except BaseException as error:
            say("raw", of=what, code=type(error).__name__, text=str(error))
            return False
        else:
            return True
    return False


def main() -> None:
    folder, number, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    until = time.monotonic() + float(sys.argv[4])
    stores: list[Store] = []
    if not patiently("open", lambda: stores.append(opened(folder)), until):
        return
    [store] = stores
    for n in range(count):
        key = 1000 * number + n
        rows = [{"k": key, "v": f"{number}-{n}"}]
        if patiently("insert", lambda k=key, r=rows: store.insert("c", r, idempotency_key=str(k)), until):  # type: ignore[misc]
            say("acknowledged", key=key)
        patiently("read", lambda: store.read("c").to_arrow(), until)
        if number == 0:
            patiently("compact", lambda: store.compact("c"), until)


if __name__ == "__main__":
    main()
