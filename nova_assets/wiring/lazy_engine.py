"""Engine that is built on its first use."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, cast

from nova_assets.model.engine import Engine


def lazy_engine(build: Callable[[], Engine]) -> Engine:
    """Engine that ``build`` makes when it is first used.

    An engine loads Arrow, which takes longer than everything else that a command does if it only reads the catalog.
    """
    return cast(Engine, _LazyEngine(build))


class _LazyEngine:
    """Forwards every access to the engine, and builds the engine first if necessary."""

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._lock = Lock()
        self._engine: Engine | None = None

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._engine is None:
                self._engine = self._build()
        return getattr(self._engine, name)

    def close(self) -> None:
        """Close the engine, if it was built."""
        if self._engine is not None:
            self._engine.close()
