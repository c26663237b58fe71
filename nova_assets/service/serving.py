"""The module path and the name by which earlier versions documented ``serve_in_background``. Programs import it."""

from nova_assets.service.assembly import serve_in_background as beside

__all__ = ["beside"]
