"""Trusted certificates for connections to services."""

from __future__ import annotations

import ssl


def trusted_ssl_context() -> ssl.SSLContext:
    """SSL context with the certificate authorities of this machine and of certifi.

    It also trusts the certificates in the file ``SSL_CERT_FILE`` or the folder ``SSL_CERT_DIR``.
    """
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
