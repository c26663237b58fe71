"""Templates of ``nova init NAME``: the files of a project that runs."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from nova_assets.errors import ArgumentRefused
from nova_assets.suggestions import did_you_mean

DEFINED_PROJECTS = {"dagster": "definitions:defs", "python": "pipeline:project", "sql": "pipeline:project"}
"""Template -> module and name of its project. The first template is the default."""

_OTHER_PACKAGES = frozenset({"dagster", "nova_assets", "pandas", "pyarrow", "pyspark", "pytest", "tests"})


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project to be laid out.

    Args:
        folder: the project's folder, which need not exist.
        template: name of the template.
        text_by_file: path below the folder -> content.
    """

    folder: Path
    template: str
    text_by_file: Mapping[str, str]

    def check_nothing_exists(self) -> None:
        """Raise ArgumentRefused if a file of the project exists, or if a folder on its way is no folder."""
        existing = [name for name in self.text_by_file if (self.folder / name).exists()]
        folders = {parent for name in self.text_by_file for parent in (self.folder / name).parents}
        blocked = sorted(str(f) for f in folders if f.exists() and not f.is_dir())
        if existing or blocked:
            raise ArgumentRefused(
                f"nova init overwrites nothing, and {self.folder} has files of a project",
                found=", ".join([*blocked, *existing][:5]),
                expected="a new folder, or one without these files",
                next="nova init ANOTHER_NAME",
            )

    def write(self) -> None:
        """Write all files. Raises ArgumentRefused before anything is written if one of them exists."""
        self.check_nothing_exists()
        for name, text in self.text_by_file.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)


def plan_project(name: str, template: str, parent: Path) -> NewProject:
    """The project of a name and a template.

    Args:
        parent: folder in which the project's folder is made.

    Raises:
        ArgumentRefused: the name cannot name a package, or the template is unknown.
    """
    if template not in DEFINED_PROJECTS:
        raise ArgumentRefused(
            f"no template is called {template!r}{did_you_mean(template, list(DEFINED_PROJECTS))}",
            expected=", ".join(DEFINED_PROJECTS),
        )
    package = package_name(name)
    values = {"name": name, "package": package, "project": DEFINED_PROJECTS[template]}
    root = files("nova_assets.cli") / "templates"
    templates = {**_template_files(root / "common"), **_template_files(root / template)}
    return NewProject(
        parent / name,
        template,
        {_fill(path, values): _fill(text, values) for path, text in sorted(templates.items())},
    )


def package_name(name: str) -> str:
    """Name of the Python package of a project: ``my_shop`` for ``my-shop``.

    Raises:
        ArgumentRefused: the name is none, or Python has a package of this name.
    """
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package) or keyword.iskeyword(package):
        raise ArgumentRefused(
            f"{name!r} cannot name a project",
            expected="lower-case letters, digits, - and _, beginning with a letter, such as shop",
        )
    if package in sys.stdlib_module_names or package in _OTHER_PACKAGES:
        raise ArgumentRefused(
            f"{name!r} cannot name a project: another Python package has this name", next=f"nova init my-{name}"
        )
    return package


def _template_files(folder: Traversable, path: str = "") -> dict[str, str]:
    """Path of a file, with placeholders -> its text, with placeholders."""
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        name = entry.name.replace("NAME", "{{ package }}")
        if entry.is_dir():
            found |= _template_files(entry, f"{path}{name}/")
        elif name.endswith(".tmpl"):
            found[path + re.sub("^dot-", ".", name.removesuffix(".tmpl"))] = entry.read_text(encoding="utf-8")
    return found


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: values[match[1]], text)
