"""Error responses as ``application/problem+json`` (RFC 9457), with one HTTP status for each class of error.

The response describes the caller's request. Internal details (addresses, paths, driver messages) stay in the log, where
the request's id finds them.

Hand-written, because it decides which texts of errors leave the service (decision 0044).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from nova_assets import errors
from nova_assets.nova_error import NovaError
from nova_assets.service.http.asgi import Scope, Send, request_state, send_response

if TYPE_CHECKING:
    from fastapi import FastAPI

CONTENT_TYPE = "application/problem+json"

_STATUS_BY_ERROR: dict[type[NovaError], int] = {
    errors.RequestRefused: 400,
    errors.BadToken: 401,
    errors.NotAllowed: 403,
    errors.ChannelNotFound: 404,
    errors.BindingNotFound: 404,
    errors.DefinitionNotFound: 404,
    errors.VersionNotFound: 404,
    errors.CommitConflict: 409,
    errors.DefinitionConflict: 409,
    errors.ExecutionInProgress: 409,
    errors.ExecutionNotLive: 409,
    errors.GroupSealed: 409,
    errors.IdempotencyConflict: 409,
    errors.InputsMissing: 409,
    errors.ModelChanged: 409,
    errors.TableTaken: 409,
    errors.TimelineDiffers: 409,
    errors.UnrepresentableChange: 409,
    errors.BlockCollected: 410,
    errors.DefinitionRemoved: 410,
    errors.BadKey: 422,
    errors.SumOverflow: 422,
    errors.BadRecord: 422,
    errors.CheckFailed: 422,
    errors.DefinitionError: 422,
    errors.EmptyInput: 422,
    errors.PartitionError: 422,
    errors.SchemaMismatch: 422,
    errors.TooManyBadRecords: 422,
    errors.ValueRefused: 422,
    errors.ArgumentRefused: 422,
    errors.Renamed: 422,
    errors.ServiceBusy: 429,
    errors.NotSupported: 501,
    errors.ServiceUnavailable: 503,
    errors.RequestTimedOut: 504,
}
"""Errors whose messages are sent to the caller."""

_TEXT_BY_INTERNAL_ERROR: dict[type[NovaError], tuple[int, str]] = {
    errors.CatalogUnavailable: (503, "the catalog does not answer"),
    errors.CatalogVersion: (503, "the catalog has another version than the service"),
    errors.CopyUndecided: (503, "the catalog is a copy, and nobody has decided whether it owns the warehouse"),
    errors.CommitOutcomeUnknown: (
        503,
        "the connection to the catalog was lost during COMMIT: the commit may have succeeded",
    ),
    errors.DagsterUnavailable: (503, "Dagster does not answer"),
    errors.EngineUnavailable: (503, "the engine does not start or answer"),
    errors.SourceUnavailable: (503, "the source of arriving files does not answer"),
    errors.StorageFailed: (503, "the service cannot store its file views"),
    errors.TableUnavailable: (503, "a published table of the channel does not answer"),
    errors.WarehouseMismatch: (500, "the warehouse does not belong to the catalog"),
    errors.WarehouseUnavailable: (503, "the warehouse cannot be read or written"),
    errors.FileMissing: (500, "a file of the warehouse is missing or was changed"),
    errors.QueryRefused: (500, "Spark rejects a query of the project"),
    errors.SettingsError: (500, "the settings of the service are invalid"),
    errors.TaskFailed: (500, "a task has failed; its execution keeps its pins and can be resumed"),
}
"""Errors with internal details. The caller gets only these texts."""

_UNEXPECTED_ERROR = (500, "the service has failed with an unexpected error")

_REPEAT_WITH_KEY_TEXT = "repeat the request with the same idempotency key: it takes effect once"

_RETRY_AFTER = {429: "1", 503: "5"}

_PUBLIC_FIELDS = ("channel", "binding", "partition", "head", "right", "rows", "not_started")
"""Error fields that are sent to the caller."""


class ProblemResponse(NamedTuple):
    """HTTP status and JSON body of an error response."""

    status: int
    body: dict[str, Any]


def problem_from_error(error: BaseException, request_id: str | None = None) -> ProblemResponse:
    """Response for an error, with the request id by which the operator finds the error in the log."""
    status, public_text = _status_and_public_text(error)
    code = error.code if isinstance(error, NovaError) else "NOVA-UNEXPECTED"
    body: dict[str, Any] = {
        "type": f"urn:nova:problem:{code.removeprefix('NOVA-').lower()}",
        "title": code.removeprefix("NOVA-").replace("-", " ").capitalize(),
        "status": status,
        "detail": public_text if public_text is not None else redact_paths(getattr(error, "what", "")),
        "code": code,
    }
    if public_text is None and isinstance(error, NovaError):
        parts = {"found": error.found, "expected": error.expected, "next": error.next}
        if isinstance(error, errors.ChannelNotFound):  # its hints name channels that the caller may not read
            parts |= {"expected": None, "next": "GET /v1/channels lists the channels that this caller may read"}
        body |= {name: redact_paths(str(part)) for name, part in parts.items() if part is not None}
        body |= {n: _to_redacted_json_value(error.fields[n]) for n in _PUBLIC_FIELDS if n in error.fields}
    else:
        body["next"] = (
            _REPEAT_WITH_KEY_TEXT
            if isinstance(error, errors.CommitOutcomeUnknown)
            else _next_step_text(status, request_id)
        )
    return ProblemResponse(status, body | ({"request_id": request_id} if request_id else {}))


def problem_headers(status: int) -> list[tuple[str, str]]:
    """Response headers for an error status."""
    headers = [("cache-control", "no-store")]
    if status == 401:
        headers.append(("www-authenticate", 'Bearer realm="nova"'))
    if status in _RETRY_AFTER:
        headers.append(("retry-after", _RETRY_AFTER[status]))
    return headers


async def send_problem(scope: Scope, send: Send, error: BaseException, *, close: bool = False) -> None:
    """Send an error response.

    Args:
        close: also close the connection.
    """
    state = request_state(scope)
    status, body = problem_from_error(error, state.get("request_id"))
    state["refused"] = refusal_reason(error)
    headers = problem_headers(status) + ([("connection", "close")] if close else [])
    await send_response(send, status, encode_problem(body), CONTENT_TYPE, headers)


def encode_problem(problem: dict[str, Any]) -> bytes:
    """Problem as JSON bytes."""
    return json.dumps(problem, default=str).encode()


def error_from_problem(problem: dict[str, Any]) -> NovaError:
    """Error that a problem describes, for a client to raise."""
    standard_fields = {"type", "title", "status", "detail", "code", "found", "expected", "next"}
    what = str(problem.get("detail") or problem.get("title") or "the service refused the request")
    return errors.error_class_of_code(str(problem.get("code")))(
        what,
        found=problem.get("found"),
        expected=problem.get("expected"),
        next=problem.get("next"),
        status=problem.get("status"),
        **{str(k): v for k, v in problem.items() if k not in standard_fields and str(k).isidentifier()},
    )


def refusal_reason(error: BaseException) -> str:
    """Short reason of a refusal, as a metrics label."""
    if isinstance(error, NovaError):
        return str(error.fields.get("reason") or error.code.removeprefix("NOVA-").lower().replace("-", "_"))
    return "unexpected"


def install_error_handlers(app: FastAPI) -> None:
    """Let an app answer all exceptions of its routes with problems."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

    def handle_error(request: Request, error: Exception) -> Response:
        translated = error if isinstance(error, NovaError) else _translate_framework_error(request, error)
        state = request_state(request.scope)
        status, body = problem_from_error(translated, state.get("request_id"))
        state["refused"] = refusal_reason(translated)
        if status >= 500:
            state["failure"] = error
        headers = (
            dict(getattr(error, "headers", None) or {}) | dict(problem_headers(status)) | _allow_header(request, status)
        )
        return Response(encode_problem(body), status, headers, CONTENT_TYPE)

    for kind in (NovaError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, handle_error)


def _translate_framework_error(request: Any, error: Exception) -> BaseException:
    """NovaError for an exception of the web framework."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        detail = str(getattr(error, "detail", "") or "refused")
        what = f"{request.method} on this route: {detail[0].lower()}{detail[1:]}"
        if status == 404:
            what = "there is no such route"
        return errors.RequestRefused(
            what,
            found=f"{request.method} {request.url.path[:200]}",
            next="GET /v1/openapi.json describes every route",
            status=status,
            reason=f"status_{status}",
        )
    if hasattr(error, "errors"):
        invalid_fields = error.errors()
        field_paths = list(dict.fromkeys(".".join(str(part) for part in e["loc"]) for e in invalid_fields))
        in_body = any(e["loc"][:1] == ("body",) for e in invalid_fields)
        return errors.RequestRefused(
            f"the request is malformed: {', '.join(field_paths)}",
            found="; ".join(dict.fromkeys(f"{e['loc'][-1]}: {e['msg']}" for e in invalid_fields)),
            next="GET /v1/openapi.json describes the expected request",
            status=422 if in_body else 400,
            reason="unreadable",
        )
    return error


def _allow_header(request: Any, status: int) -> dict[str, str]:
    """``Allow`` header for a 405 response, over all routes that share the path."""
    operations = request.app.openapi()["paths"].get(getattr(request.scope.get("route"), "path", None), {})
    return {"Allow": ", ".join(sorted(operations)).upper()} if status == 405 and operations else {}


def _status_and_public_text(error: BaseException) -> tuple[int, str | None]:
    """HTTP status, and the text that replaces the error's own message."""
    if isinstance(error, errors.RequestRefused):
        return int(error.fields.get("status", 400)), None
    for kind in type(error).__mro__:
        if kind in _TEXT_BY_INTERNAL_ERROR:
            return _TEXT_BY_INTERNAL_ERROR[kind]
        if kind in _STATUS_BY_ERROR:
            return _STATUS_BY_ERROR[kind], None
    return _UNEXPECTED_ERROR


def _next_step_text(status: int, request_id: str | None) -> str:
    if status == 503:
        return "retry later"
    return f"tell the operator of the service the request id {request_id}" if request_id else "retry later"


def _to_redacted_json_value(value: object) -> bool | int | float | str | None:
    return value if isinstance(value, bool | int | float | None) else redact_paths(str(value))


_ADDRESS = re.compile(
    r"\b(?:file|s3a?|hdfs|abfss?|gs|sqlite|postgresql(?:\+\w+)?)://[^/\s]*((?:/[^\s/'\",;)]*)*)", re.I
)
_PATH = re.compile(r"(?<![\w./…])(?!//)(?:/|[A-Za-z]:\\)(?:[^\s/\\'\":,;()]+[/\\])+([^\s/\\'\":,;()]*)")


def redact_paths(text: str) -> str:
    """Text without folders, addresses and passwords of the server. File names stay."""
    text = _ADDRESS.sub(lambda m: f"…/{m[1].rstrip('/').rpartition('/')[2]}", text)
    return _PATH.sub(r"…/\1", text)
