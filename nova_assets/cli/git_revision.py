"""The datasets of a project as a revision of its Git repository has them.

The revision is laid out in a folder of its own, and a process of its own imports the project from there: definitions
are Python, and a process has each module once.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from nova_assets.errors import SettingsError
from nova_assets.settings import Settings
from nova_assets.sql.datasets.declared import Declared


def declared_at(revision: str, settings: Settings) -> Declared:
    """What the datasets of a project were made of at a revision.

    Args:
        revision: anything that Git takes for a commit: ``main``, ``HEAD~3``, ``v1.2``.
        settings: of the project as it is now.

    Raises:
        SettingsError: there is no such revision, or the project cannot be loaded as it was.
    """
    here = settings.root.resolve()
    top = Path(_git(here, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    commit = _git(here, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode()
    with tempfile.TemporaryDirectory(prefix="nova-check-") as folder:
        then = Path(folder).resolve()
        with tarfile.open(fileobj=io.BytesIO(_git(top, "archive", "--format=tar", commit.strip()))) as tree:
            tree.extractall(then, filter=_without_links_out)
        return _loaded(revision, then, here.relative_to(top), [p.relative_to(top) for p in _roots(top)], settings)


def _without_links_out(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """As any archive is laid out that nobody vouches for; links that lead elsewhere are left out."""
    try:
        return tarfile.data_filter(member, path)
    except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
        return None


def _loaded(revision: str, then: Path, root: Path, roots: list[Path], settings: Settings) -> Declared:
    """The project, imported by a process whose modules come from that tree."""
    path = [str(then / p) for p in roots]
    if os.environ.get("PYTHONPATH"):
        path.append(os.environ["PYTHONPATH"])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    if not (then / root).is_dir():
        raise _failed(revision, f"{root} is not there")
    command = [sys.executable, "-m", "nova_assets.cli.git_revision", str(then)]
    if settings.project is not None:
        command.append(settings.project)
    done = subprocess.run(command, cwd=then / root, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).replace(f"{then}/", "")
        raise _failed(revision, said)
    return Declared.from_json(json.loads(done.stdout.splitlines()[-1]))


def _failed(revision: str, found: str) -> SettingsError:
    return SettingsError(
        f"the project cannot be loaded as it was at {revision}",
        found=found,
        expected="definitions that can be imported from the repository",
        next="nova check compares with what is deployed; or name another revision",
    )


def _roots(top: Path) -> list[Path]:
    """Where modules are imported from, as far as it is in the repository and no environment in it."""
    found = (Path(p).resolve() for p in sys.path if p)
    prefix = Path(sys.prefix).resolve()
    return [p for p in dict.fromkeys(found) if p.is_relative_to(top) and not p.is_relative_to(prefix)]


def _git(folder: Path, *command: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *command], capture_output=True, check=False)
    except FileNotFoundError:
        raise SettingsError("git is not installed", expected="git, to look at a revision") from None
    if done.returncode:
        raise SettingsError(
            f"git {command[0]} does not know it: {command[-1].removesuffix('^{commit}')}"
            if command[0] == "rev-parse" and "--verify" in command
            else f"git {command[0]} failed in {folder}",
            found=done.stderr.decode(errors="replace").strip() or "no such revision",
            expected="a revision of the repository that the project is in",
            next="git log --oneline",
        )
    return done.stdout


def main() -> None:
    """Print what the project in this folder declares, in one line; its module is of the tree given."""
    from nova_assets.settings import load_settings
    from nova_assets.sql.datasets.datasets import queries_of
    from nova_assets.wiring import open_store

    tree = Path(sys.argv[1])
    settings = load_settings(project=sys.argv[2] if len(sys.argv) > 2 else None)
    project = open_store.load_project(settings)
    if project is None or settings.project is None:
        raise SystemExit("no project is configured there")
    module = sys.modules[settings.project.partition(":")[0]]
    source = Path(module.__file__ or "").resolve()
    if not source.is_relative_to(tree):
        raise SystemExit(f"{settings.project} is imported from {source}, and not from the revision")
    graphs = {id(q.graph): q.graph for q in queries_of(project).values()}
    print(json.dumps(Declared.together(map(Declared.of, graphs.values())).as_json()))


if __name__ == "__main__":
    main()
