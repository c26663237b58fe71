"""What other processes have used: seconds of CPU, and memory. Linux tells."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Of one process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process: in memory altogether, and of these its own, without pages of files."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    told = {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if line[0] in ("VmRSS:", "RssAnon:")}
    return told["VmRSS"], told["RssAnon"]
