"""``python -m nova_assets.cli``: the ``nova`` command without its script."""

from __future__ import annotations

from nova_assets.cli.main import main

if __name__ == "__main__":
    main()
