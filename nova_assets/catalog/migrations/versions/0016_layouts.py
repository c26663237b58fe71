"""Layouts from before they named the types of their keys: hashed otherwise, so such blocks count as not laid out."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

blocks = sa.table("nova_blocks", sa.column("id", sa.String), sa.column("layout", sa.JSON(none_as_null=True)))
files = sa.table("nova_files", sa.column("block_id", sa.String), sa.column("place", sa.JSON(none_as_null=True)))
staged = sa.table("nova_staged", sa.column("id", sa.String), sa.column("manifest", sa.JSON(none_as_null=True)))


def upgrade() -> None:
    c = op.get_bind()
    for block, layout in c.execute(sa.select(blocks.c.id, blocks.c.layout).where(blocks.c.layout.is_not(None))).all():
        if is_untyped(layout):
            c.execute(sa.update(blocks).where(blocks.c.id == block).values(layout=None))
            c.execute(sa.update(files).where(files.c.block_id == block).values(place=None))
    for block, manifest in c.execute(sa.select(staged.c.id, staged.c.manifest)).all():
        if manifest is not None and is_untyped(manifest.get("layout")):
            plain = {**manifest, "layout": None, "files": [{**f, "place": None} for f in manifest["files"]]}
            c.execute(sa.update(staged).where(staged.c.id == block).values(manifest=plain))


def downgrade() -> None:
    pass


def is_untyped(layout: Mapping[str, Any] | None) -> bool:
    return layout is not None and "types" not in layout
