"""An object store over HTTP that counts what is asked of it, and answers as badly as a test wants."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal
from urllib.parse import parse_qs

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Kind = Literal["GET", "HEAD", "PUT", "DELETE", "LIST", "multipart"]
Fault = Literal["fails", "denied", "hangs", "loses its answer", "lists nothing", "lists what was"]
Chooser = Callable[[Kind, str], Fault | None]
"""Gives the fault of a request, by its kind and its path; None for a right answer."""

_NO_KEYS = (
    '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>{bucket}</Name><Prefix>{prefix}</Prefix><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys>"
    "<IsTruncated>false</IsTruncated></ListBucketResult>"
)
_FAILED = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code} by the test</Message></Error>'

HANG = 6.0
"""Seconds: longer than clients wait."""


class FaultyS3:
    """A server of S3. Use it in a ``with`` block.

    Args:
        choose: gives each request its fault.
    """

    def __init__(self, choose: Chooser = lambda kind, path: None) -> None:
        self.choose = choose
        self.requests: Counter[Kind] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.copies = 0
        self.at_once = 0
        self.most_at_once = 0
        self.delay = 0.0
        self._lock = threading.Lock()
        self._first_answers: dict[str, list[Any]] = {}
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._server.daemon_threads = True  # type: ignore[attr-defined]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyS3:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *of: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def counted(self) -> Counter[Kind]:
        """What was asked since this was asked last."""
        with self._lock:
            counted, self.requests = self.requests, Counter()
        return counted

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        kind, path = kind_of(environ), environ["PATH_INFO"]
        if path.startswith("/moto-api"):
            return self._app(environ, start)  # type: ignore[no-any-return]
        fault = self.choose(kind, path)
        with self._lock:
            self.requests[kind] += 1
            self.copies += "HTTP_X_AMZ_COPY_SOURCE" in environ
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            if fault is not None:
                self.faults[fault] += 1
        try:
            time.sleep(self.delay)
            return self._with_fault(fault, environ, start)
        finally:
            with self._lock:
                self.at_once -= 1

    def _with_fault(self, fault: Fault | None, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if fault in ("fails", "denied"):
            code, text = ("503 Slow Down", "SlowDown") if fault == "fails" else ("403 Forbidden", "AccessDenied")
            return _said(start, code, _FAILED.format(code=text))
        if fault == "lists nothing":
            query = parse_qs(environ["QUERY_STRING"])
            bucket = environ["PATH_INFO"].strip("/")
            return _said(start, "200 OK", _NO_KEYS.format(bucket=bucket, prefix=query.get("prefix", [""])[0]))
        if fault == "lists what was":
            asked = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
            with self._lock:
                if asked not in self._first_answers:
                    status: list[Any] = []
                    body = list(self._app(environ, lambda *a: status.append(a)))
                    self._first_answers[asked] = [status[0], body]
                (told, body) = self._first_answers[asked]
            start(*told)
            return body  # type: ignore[no-any-return]
        if fault == "hangs":
            time.sleep(HANG)
        found: Iterable[bytes] = self._app(environ, start)
        if fault == "loses its answer":
            list(found)
            raise ConnectionResetError("the answer is lost")
        return found


def kind_of(environ: dict[str, Any]) -> Kind:
    """What is asked."""
    method, query = environ["REQUEST_METHOD"], parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
    if "uploads" in query or "uploadId" in query:
        return "multipart"
    if method == "GET" and environ["PATH_INFO"].strip("/").count("/") == 0:
        return "LIST"
    if method == "POST":
        return "DELETE"  # of several at once
    return method  # type: ignore[no-any-return]


def _said(start: Callable[..., Any], status: str, text: str) -> list[bytes]:
    body = text.encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]
