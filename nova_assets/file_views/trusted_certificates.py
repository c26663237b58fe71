"""Which services are believed to be who they say."""

from __future__ import annotations

import ssl


def trusted_ssl_context() -> ssl.SSLContext:
    """Those whose certificate comes from an authority that this machine knows, or certifi; or is in the file that
    ``SSL_CERT_FILE`` names, or the folder of ``SSL_CERT_DIR``."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
