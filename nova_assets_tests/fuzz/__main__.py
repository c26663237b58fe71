"""Random histories of one channel against a naive model: ``python -m nova_assets_tests.fuzz --steps 100000``.

It prints its seeds. Each history that differs is printed with the fewest steps that show it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from nova_assets_tests.fuzz.play import play
from nova_assets_tests.fuzz.scenario import KINDS, Kind
from nova_assets_tests.fuzz.values import BUCKETED_TYPES, KEY_TYPES

STEPS_OF_ONE_HISTORY = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nova_assets_tests.fuzz", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; each next one has the next")
    parser.add_argument("--spark", action="store_true", help="also bindings, and reads by every strategy")
    parser.add_argument("--bucketed", action="store_true", help="only keys that Arrow reads: ten times as many steps")
    parser.add_argument("--multiset", action="store_true", help="only Multiset channels; needs --spark")
    parser.add_argument("--most", type=int, default=5, help="stop after so many differences")
    options = parser.parse_args()
    os.environ["NOVA_CACHE"] = ""
    started, found = time.monotonic(), 0
    histories = -(-options.steps // STEPS_OF_ONE_HISTORY)
    keys = BUCKETED_TYPES if options.bucketed else KEY_TYPES
    kinds: tuple[Kind, ...] = ("multiset",) if options.multiset else KINDS
    for n in range(histories):
        spark = _session() if options.spark else None
        finding = play(options.seed + n, STEPS_OF_ONE_HISTORY, spark, possible_keys=keys, kinds=kinds)
        if finding is not None:
            found += 1
            print(finding, flush=True)
            if found >= options.most:
                break
    print(
        f"{(n + 1) * STEPS_OF_ONE_HISTORY} steps in {n + 1} histories from seed {options.seed}: "
        f"{found} differences, {time.monotonic() - started:.0f} s"
    )
    return 1 if found else 0


def _session() -> Any:
    from nova_assets.engine.session.lazy_session import LazySparkSession

    return LazySparkSession().get()


if __name__ == "__main__":
    sys.exit(main())
