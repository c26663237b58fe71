"""Middleware around the routes of a service, from the outside in: metrics, limits, access control."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from nova_assets.service.http.active_requests import ActiveRequests
from nova_assets.service.http.admission import AdmissionLimits
from nova_assets.service.http.asgi import App, Receive, Scope, Send
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure
from nova_assets.service.http.guard import AccessGuard, TokenAuthenticator, TokenLookup, utc_now
from nova_assets.service.http.metrics import MetricsMiddleware, ServiceMetrics


class GuardedApp:
    """An app behind its middleware.

    Args:
        app: the routes. They find ``caller`` and ``request_id`` in ``request.state``. They may set ``channel`` and
            ``execution_id`` there for the log.
        exposure: how the service is reached. See ``resolve_exposure``.
        find_token: lookup of a token by its id, such as ``Catalog.token``.
        now: clock for the expiry of tokens, such as ``Catalog.now``.
        metrics: metrics of the service. By default, new ones.
    """

    def __init__(
        self,
        app: App,
        config: ServiceConfig,
        exposure: Exposure,
        find_token: TokenLookup | None = None,
        now: Callable[[], datetime] = utc_now,
        metrics: ServiceMetrics | None = None,
    ) -> None:
        self.config = config
        self.exposure = exposure
        self.metrics = metrics or ServiceMetrics()
        self.active_requests = ActiveRequests()
        tokens = None if find_token is None else TokenAuthenticator(find_token, now, config.token_seconds)
        guarded = AccessGuard(app, exposure, tokens)
        self._app: App = MetricsMiddleware(AdmissionLimits(guarded, config, self.active_requests), self.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
