"""Fixtures of the service: a token issuer, and a deployment that hostile requests are sent to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from nova_assets_tests.service.served_deployment import ServedDeployment, serve_deployment
from nova_assets_tests.service.small_app import TokenIssuer


@pytest.fixture
def issuer() -> TokenIssuer:
    return TokenIssuer()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDeployment]:
    with serve_deployment(tmp_path_factory.mktemp("tricks"), auth="none", send_idle_seconds=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def send_request(deployment: ServedDeployment) -> Iterator[Callable[..., httpx.Response]]:
    with httpx.Client(base_url=f"{deployment.url}/v1/", timeout=30) as session:
        yield session.request
