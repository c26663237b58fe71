"""Datasets of a project at a revision of its Git repository.

The revision is extracted into a temporary folder. Definitions are Python, and a process can hold each module only once.
A separate process therefore imports the project from that folder.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from nova_assets.errors import SettingsError
from nova_assets.settings import Settings
from nova_assets.sql.datasets.declarations import DatasetDeclarations


def load_datasets_at_revision(revision: str, settings: Settings) -> DatasetDeclarations:
    """Dataset declarations of a project at a revision.

    Args:
        revision: any name of a commit in Git, such as ``main``, ``HEAD~3`` or ``v1.2``.
        settings: settings of the current project.

    Raises:
        SettingsError: the revision does not exist, or the project cannot be loaded at the revision.
    """
    project_folder = settings.root.resolve()
    repository = Path(_run_git(project_folder, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    commit = _run_git(
        project_folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    ).decode()
    with tempfile.TemporaryDirectory(prefix="nova-check-") as folder:
        checkout = Path(folder).resolve()
        with tarfile.open(fileobj=io.BytesIO(_run_git(repository, "archive", "--format=tar", commit.strip()))) as tree:
            tree.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and newer
            tree.extractall(checkout, [m for m in tree if not _links_outside(m)])
        return _load_project_in_subprocess(
            revision,
            checkout,
            project_folder.relative_to(repository),
            [p.relative_to(repository) for p in _import_paths_in_repository(repository)],
            settings,
        )


def _links_outside(member: tarfile.TarInfo) -> bool:
    """Whether a member of an archive is a link to a path outside the archive."""
    if not member.islnk() and not member.issym():
        return False
    folder = "" if member.islnk() else posixpath.dirname(member.name)  # hard links are relative to the archive
    target = posixpath.normpath(posixpath.join(folder, member.linkname))
    return posixpath.isabs(target) or target.split("/")[0] == ".."


def _load_project_in_subprocess(
    revision: str, checkout: Path, project_path: Path, import_paths: list[Path], settings: Settings
) -> DatasetDeclarations:
    """Import the project in a subprocess whose modules come from the checkout, and return its declarations."""
    python_path = [str(checkout / p) for p in import_paths]
    if os.environ.get("PYTHONPATH"):
        python_path.append(os.environ["PYTHONPATH"])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(python_path)}
    if not (checkout / project_path).is_dir():
        raise _load_error(revision, f"{project_path} does not exist")
    command = [sys.executable, "-m", "nova_assets.cli.git_revision", str(checkout)]
    if settings.project is not None:
        command.append(settings.project)
    process = subprocess.run(command, cwd=checkout / project_path, env=env, capture_output=True, text=True, check=False)
    if process.returncode:
        output = (process.stderr.strip() or process.stdout.strip()).replace(f"{checkout}/", "")
        raise _load_error(revision, output)
    return DatasetDeclarations.from_json(json.loads(process.stdout.splitlines()[-1]))


def _load_error(revision: str, cause: str) -> SettingsError:
    return SettingsError(
        f"the project cannot be loaded at revision {revision}",
        found=cause,
        expected="definitions that can be imported from the repository",
        next="nova check compares with the deployed datasets; or name another revision",
    )


def _import_paths_in_repository(repository: Path) -> list[Path]:
    """Import paths inside the repository, except the virtual environment."""
    search_paths = (Path(p).resolve() for p in sys.path if p)
    prefix = Path(sys.prefix).resolve()
    return [p for p in dict.fromkeys(search_paths) if p.is_relative_to(repository) and not p.is_relative_to(prefix)]


def _run_git(folder: Path, *arguments: str) -> bytes:
    try:
        process = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise SettingsError("git is not installed", expected="git on the PATH, to read a revision") from None
    if process.returncode:
        raise SettingsError(
            f"the repository has no revision {arguments[-1].removesuffix('^{commit}')}"
            if arguments[0] == "rev-parse" and "--verify" in arguments
            else f"git {arguments[0]} failed in {folder}",
            found=process.stderr.decode(errors="replace").strip() or "no such revision",
            expected="a revision of the project's repository",
            next="git log --oneline",
        )
    return process.stdout


def main() -> None:
    """Print the declarations of the project in the current folder as one line of JSON.

    The first argument is the checkout from which the project's module must come. The second argument names the project.
    """
    from nova_assets.settings import load_settings
    from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
    from nova_assets.wiring import open_store

    checkout = Path(sys.argv[1])
    settings = load_settings(project=sys.argv[2] if len(sys.argv) > 2 else None)
    project = open_store.load_project(settings)
    if project is None or settings.project is None:
        raise SystemExit("no project is configured at this revision")
    module = sys.modules[settings.project.partition(":")[0]]
    source = Path(module.__file__ or "").resolve()
    if not source.is_relative_to(checkout):
        raise SystemExit(f"{settings.project} is imported from {source}, not from the revision")
    graphs = {id(q.graph): q.graph for q in dataset_queries_by_name(project).values()}
    print(json.dumps(DatasetDeclarations.merge(map(DatasetDeclarations.from_graph, graphs.values())).as_json()))


if __name__ == "__main__":
    main()
