"""Fixtures of the service: a token issuer, and a deployment that hostile requests are sent to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from nova_assets_tests.service.deployed import Deployed, deployed
from nova_assets_tests.service.small_app import Issuer


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("tricks"), auth="none", send_idle_seconds=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def ask(there: Deployed) -> Iterator[Callable[..., httpx.Response]]:
    with httpx.Client(base_url=f"{there.url}/v1/", timeout=30) as session:
        yield session.request
