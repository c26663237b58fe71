"""Component of a channel that gets its data from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Literal, cast

from dagster import scaffold_with
from pydantic import Field

from nova_assets.dagster_bridge.components.channel_attributes import (
    Columns,
    MergeAttributes,
    PartitionAttributes,
    SealAttributes,
    SourceAttributes,
    TableAttributes,
    described,
)
from nova_assets.dagster_bridge.components.contribution import Contribution
from nova_assets.dagster_bridge.components.field_error import in_field
from nova_assets.dagster_bridge.components.project_part import ProjectPart
from nova_assets.dagster_bridge.components.scaffolders import ChannelScaffolder
from nova_assets.model.channel import Channel, OnSchemaChange
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.sql.statement.dataset_options import check_from_text


@scaffold_with(ChannelScaffolder)
class ChannelComponent(ProjectPart):
    """A channel that gets its data from outside: from files that arrive, or from inserts.

    The channel becomes an asset, and a part of the one nova project of the code location.
    """

    name: Annotated[str, described("Name of the channel, and of its asset.")]
    ddl: Annotated[
        str | None,
        described("Columns and types as Spark DDL: id bigint, shop string. By default, the first block gives them."),
    ] = Field(default=None, alias="schema")
    merge: Annotated[
        MergeAttributes | None, described("How deltas merge into bases. By default, rows are only added.")
    ] = None
    partitions: Annotated[
        Sequence[PartitionAttributes], described("Dimensions by which the channel is partitioned, outermost first.")
    ] = ()
    source: Annotated[SourceAttributes | None, described("The files that arrive for the channel.")] = None
    seal: Annotated[SealAttributes | None, described("When a day or an hour of the channel is complete.")] = None
    publish: Annotated[Sequence[TableAttributes], described("Tables through which other tools read the channel.")] = ()
    checks: Annotated[
        Sequence[str],
        described("Checks that rows have to pass before they are inserted: not_null(id), expression(amount > 0)."),
    ] = ()
    warn: Annotated[Sequence[str], described("Checks that are only reported, as in checks.")] = ()
    on_schema_change: Annotated[
        Literal["freeze", "evolve"] | str,
        described("Data with other columns or types: freeze rejects it, evolve accepts it."),
    ] = "freeze"
    cluster_by: Annotated[Columns, described("Key columns whose new values lie close together, such as dates.")] = ()
    retain: Annotated[str | None, described("Period for which old versions can be read, such as 30d.")] = None
    fresh_within: Annotated[
        str | None, described("Dagster reports the asset as stale if its newest data is older, such as 25h.")
    ] = None
    renamed: Annotated[Mapping[str, str], described("New name -> old name of each renamed column.")] = {}
    description: Annotated[str | None, described("Description of the asset.")] = None
    owners: Annotated[Sequence[str], described("Owners of the asset: addresses, or team:NAME.")] = ()
    group: Annotated[str | None, described("Group of the asset.")] = None
    tags: Annotated[Mapping[str, str], described("Tags of the asset.")] = {}

    @cached_property
    def contribution(self) -> Contribution:
        """The channel, and its checks. Raises FieldError."""
        channel = self._channel()
        checks = []
        for field, texts in (("checks", self.checks), ("warn", self.warn)):
            for index, text in enumerate(texts):
                with in_field(field, index):
                    checks.append(check_from_text(text, channel, is_blocking=field == "checks"))
        return Contribution(channels=[channel], checks=checks, key_prefix=self.parsed_key_prefix)

    def _channel(self) -> Channel:
        with in_field("schema"):
            schema = schema_from_declaration(self.ddl)
        with in_field("merge"):
            merge = None if self.merge is None else self.merge.to_model()
        partitions = []
        for index, attributes in enumerate(self.partitions):
            with in_field("partitions", index):
                partitions.append(attributes.to_dimension())
        with in_field("source"):
            source = None if self.source is None else self.source.to_files()
        with in_field("seal"):
            seal = None if self.seal is None else self.seal.to_sealing()
        publish = []
        for index, table in enumerate(self.publish):
            with in_field("publish", index):
                publish.append(table.to_table())
        with in_field():
            return Channel(
                self.name,
                merge,
                schema,
                partitions,
                cast(OnSchemaChange, self.on_schema_change),
                cluster_by=self.cluster_by,
                description=self.description,
                owners=self.owners,
                group=self.group,
                tags=self.tags,
                fresh_within=self.fresh_within,
                retain=self.retain,
                source=source,
                seal=seal,
                publish=publish,
                renamed=self.renamed,
            )
