"""Components for ``dg``: a nova project in YAML, such as ``type: nova_assets.components.Channel``.

``dg`` finds this module by the entry point ``dagster_dg_cli.registry_modules``, and loads each name in it. The module
names nothing else, because a name that needs a missing package would break ``dg`` in every project. ``dg``
requires subclasses of ``dagster.Component``, so the types cannot be ``nova_assets.Channel`` and so on.
"""

from nova_assets.dagster_bridge.components.channel_component import ChannelComponent as Channel
from nova_assets.dagster_bridge.components.datasets_component import DatasetsComponent as Datasets
from nova_assets.dagster_bridge.components.project_component import ProjectComponent as Project

__all__ = ["Channel", "Datasets", "Project"]
