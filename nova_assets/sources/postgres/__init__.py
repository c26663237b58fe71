"""Tables of PostgreSQL as sources: connection, queries, and snapshots that several connections share."""
