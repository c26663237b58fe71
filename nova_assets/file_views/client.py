"""Asking a service for views, over HTTP, such that nothing fails when it does not answer, or answers wrongly."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from nova_assets.file_views.responses import Known
from nova_assets.file_views.trusted_certificates import trusted
from nova_assets.masking import get_logger, mask_address, remember_secrets
from nova_assets.model.timeline import Position

log = get_logger("nova_assets.views")

T = TypeVar("T")

PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds for which a service that did not answer is left alone: they double from the one to the other."""


_PER_SECOND = 2**20
"""Bytes of an answer that have to come in each further second."""


class Unserved(Exception):
    """The service did not give an answer that can be relied upon.

    Args:
        reason: ``unreachable``, ``slow``, ``busy``, ``failing`` or ``wrong``; ``paused`` while it is left alone for
            that; ``refused``, of this question; ``behind``, where what is known is too old to tell the way from there.
    """

    def __init__(self, reason: str, what: str = "") -> None:
        super().__init__(f"{reason}: {what}" if what else reason)
        self.reason = reason


@dataclass
class Counts:
    """How questions were answered, in this process.

    Args:
        served: by the service.
        fell_back: reason -> how many were answered from the catalog instead.
    """

    served: int = 0
    fell_back: dict[str, int] = field(default_factory=dict)

    def fall_back(self, reason: str) -> None:
        self.fell_back[reason] = self.fell_back.get(reason, 0) + 1

    def as_json(self) -> dict[str, Any]:
        return {"served": self.served, "fell_back": dict(self.fell_back)}


class Client:
    """One service.

    When it fails it is left alone for a moment, and asked again then: so it costs those who can do without it no more
    than one timeout now and then, and they return to it by themselves.

    Args:
        url: where it is.
        token: by which it knows us; None where it asks for none.
        timeout: seconds that an answer may take.
        catalog: the identity of the catalog that it is to answer for; None to believe it.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 2.0, catalog: str | None = None) -> None:
        self.url = url.rstrip("/")
        remember_secrets(url, values={"token": token or ""})
        self.timeout = timeout
        self.catalog = catalog
        self.counts = Counts()
        self._token = token
        self._http: Any = None
        self._until = self._paused_at = 0.0
        self._pause = PAUSE
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Other processes make connections of their own."""
        return {"url": self.url, "timeout": self.timeout, "catalog": self.catalog, "_token": self._token}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["url"], state["_token"], state["timeout"], state["catalog"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<Client {mask_address(self.url)}>"

    def ask(
        self,
        channel: str,
        what: str,
        parameters: Mapping[str, Any],
        known: Position,
        understood: Callable[[bytes], tuple[Known, T]],
        otherwise: Callable[[], T],
    ) -> T:
        """What the service answers about a channel; or else what ``otherwise`` gives.

        Args:
            known: what is known of the channel's timeline: the answer has to go on from there.
            understood: what is made of the answer.
        """
        began = time.monotonic()
        try:
            answer = self._answer(channel, what, parameters, known, understood)
        except Unserved as error:
            self._failed(error, began)
            return otherwise()
        with self._lock:
            if self._pause > PAUSE:
                log.info("the service %s answers again", self.url)
            self._pause = PAUSE
            self.counts.served += 1
        return answer

    def _answer(
        self,
        channel: str,
        what: str,
        parameters: Mapping[str, Any],
        known: Position,
        understood: Callable[[bytes], tuple[Known, T]],
    ) -> T:
        if time.monotonic() < self._until:
            raise Unserved("paused")
        path = f"/v1/channels/{quote(channel, safe='')}/{what}"
        given = {name: value for name, value in parameters.items() if value not in (None, "")}
        try:
            text = self._get(path, {**given, "known": str(known), "fresh": "false"})
        except Unserved:
            raise
        except Exception as error:  # no job fails for it, whatever it is
            raise Unserved("failing", type(error).__name__) from error
        try:
            found, answer = understood(text)
        except Exception as error:  # whatever it is that was answered, it is no such answer
            raise Unserved("wrong", f"{type(error).__name__}: {error}") from error
        if not found.links and found.position.step > known.step:
            raise Unserved("behind", f"it is {found.position.step - known.step} instants further")
        if not found.goes_on_from(known):
            raise Unserved("wrong", f"it is at {found.position.step} of another timeline than {known.step} is of")
        return answer

    def _get(self, path: str, parameters: Mapping[str, Any]) -> bytes:
        import httpx

        until = time.monotonic() + self.timeout
        try:
            with self._connected().stream("GET", path, params=parameters) as response:
                found = bytearray()
                for part in response.iter_bytes():
                    found += part
                    # httpx counts from part to part. What is much may take longer, if it comes well.
                    if time.monotonic() > until + len(found) / _PER_SECOND:
                        raise Unserved("slow", f"no answer within {self.timeout:g} s")
        except httpx.TimeoutException as error:
            raise Unserved("slow", f"no answer within {self.timeout:g} s") from error
        except httpx.HTTPError as error:
            raise Unserved("unreachable", str(error)) from error
        if response.status_code in (429, 503, 504):
            raise Unserved("busy", f"status {response.status_code}")
        if response.status_code == 409:
            raise Unserved("wrong", "it knows another timeline")
        if response.status_code in (401, 403, 404, 410, 422):
            raise Unserved("refused", f"status {response.status_code}")
        if response.status_code != 200:
            raise Unserved("failing", f"status {response.status_code}")
        if self.catalog is not None and response.headers.get("nova-catalog") != self.catalog:
            raise Unserved("wrong", "it answers for another catalog")
        return bytes(found)

    def _connected(self) -> Any:
        with self._lock:
            if self._http is None:
                import httpx

                headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
                limits = httpx.Limits(max_keepalive_connections=16)
                timeout = httpx.Timeout(self.timeout, connect=min(self.timeout, 1.0))
                self._http = httpx.Client(
                    base_url=self.url,
                    headers=headers,
                    timeout=timeout,
                    limits=limits,
                    trust_env=False,
                    verify=trusted(),
                )
            return self._http

    def _failed(self, error: Unserved, began: float) -> None:
        with self._lock:
            self.counts.fall_back(error.reason)
            # What the service said of this question is no fault of its own; and of many that failed at once one counts.
            if error.reason in ("paused", "refused", "behind") or began < self._paused_at:
                return
            if self._pause == PAUSE:
                log.warning("the service %s is done without, for a moment: %s", self.url, error)
            self._paused_at = time.monotonic()
            self._until = self._paused_at + self._pause * random.uniform(0.8, 1.2)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def close(self) -> None:
        with self._lock:
            held, self._http = self._http, None
        if held is not None:
            held.close()
