"""What it costs to ask a service which files a partition has."""
