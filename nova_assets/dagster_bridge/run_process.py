"""Which job a run process carries out. Such a process loads all definitions, and needs the steps of this job only."""

from __future__ import annotations

import multiprocessing
import os
import sys

from dagster._core.definitions.reconstruct import ReconstructableJob

JOB_VARIABLE = "DAGSTER_RUN_JOB_NAME"
"""Variable that Dagster's launchers set in the containers of runs and steps."""

COMMANDS_OF_RUNS = {"execute_run", "resume_run", "execute_step"}
"""Commands of ``dagster api`` that launchers start in a container."""


def job_of_run_process() -> str | None:
    """Name of the job whose run, or a step of it, this process carries out.

    None in any other process, such as a code server, and if Dagster does not tell. Then all definitions are needed.
    """
    if COMMANDS_OF_RUNS & set(sys.argv):
        return os.environ.get(JOB_VARIABLE)
    if multiprocessing.parent_process() is None:
        return None
    arguments = getattr(multiprocessing.current_process(), "_args", ())  # a code server gives the job to its child
    for argument in arguments:
        job = getattr(argument, "recon_pipeline", argument)  # a step of the multiprocess executor has it as attribute
        if isinstance(job, ReconstructableJob):
            return job.job_name
    return None
