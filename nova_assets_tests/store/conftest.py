"""The deployment on a stub engine that the tests of ``execution`` use, too."""

from nova_assets_tests.execution.conftest import catalog_url as catalog_url
from nova_assets_tests.execution.conftest import clock as clock
from nova_assets_tests.execution.conftest import opened as opened
