"""A soak of a SQLite catalog under services, Dagster, commands and signals at random."""
