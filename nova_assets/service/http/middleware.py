"""What stands around the routes of a service: it observes, limits, and guards, in this order from the outside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from nova_assets.service.http.active_requests import Work
from nova_assets.service.http.admission import Limits
from nova_assets.service.http.asgi import App, Receive, Scope, Send
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import Exposure
from nova_assets.service.http.guard import Find, Guard, Tokens, utc_now
from nova_assets.service.http.metrics import Observe, Observed


class Shell:
    """An app behind its guard.

    Args:
        app: the routes. What they find in ``request.state``: ``caller``, ``request_id``. What they may leave there for
            the log: ``channel``, ``execution_id``.
        exposure: how the service is reached; see ``exposed``.
        find: looks a token up by its id; ``Catalog.token``.
        now: what time it is, by which tokens expire; ``Catalog.now``.
    """

    def __init__(
        self,
        app: App,
        config: ServiceConfig,
        exposure: Exposure,
        find: Find | None = None,
        now: Callable[[], datetime] = utc_now,
        observed: Observed | None = None,
    ) -> None:
        self.config = config
        self.exposure = exposure
        self.observed = observed or Observed()
        self.work = Work()
        tokens = None if find is None else Tokens(find, now, config.token_seconds)
        guarded = Guard(app, exposure, tokens)
        self._app: App = Observe(Limits(guarded, config, self.work), self.observed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
