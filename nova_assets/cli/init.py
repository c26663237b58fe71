"""``nova init``: create the catalog and the warehouse, and register the channels; or lay out a new project."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console

from nova_assets.cli.columns_by_base import columns_by_base_json, show_columns_by_base
from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_merge_model, pluralize, print_lines, print_table
from nova_assets.engine.storage.remote_warehouse import open_warehouse
from nova_assets.errors import ArgumentRefused
from nova_assets.masking import mask_address
from nova_assets.model.channel import Channel
from nova_assets.model.channel_registration import ColumnsByBase
from nova_assets.model.project import Project
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store
from nova_assets.suggestions import did_you_mean

RegistrationAction = Literal["register", "keep", "replace", "conflict", "refuse"]

DEFINED_PROJECTS = {"dagster": "definitions:defs", "python": "pipeline:project", "sql": "pipeline:project"}
"""Template -> module and name of its project. The first template is the default."""

_ACTION_TEXTS = {
    "register": ("would be registered", "registered"),
    "keep": ("is registered", "is registered"),
    "replace": ("would be replaced", "replaced"),
    "conflict": ("is registered with another definition; --replace registers this one", ""),
    "refuse": ("cannot be replaced", ""),
}


@dataclass(frozen=True, slots=True)
class Registration:
    """Registration of one channel of the project, planned or done.

    Args:
        channel: the channel as the project defines it.
        action: effect on the registered definition.
        differences: names of the parts in which the registered definition differs.
        refusal: why stored rows cannot have the new definition; None if they can.
        by_base: columns that take effect with the next base; None if there are none.
    """

    channel: Channel
    action: RegistrationAction
    differences: tuple[str, ...] = ()
    refusal: NovaError | None = None
    by_base: ColumnsByBase | None = None


@dataclass(frozen=True, slots=True)
class Initialisation:
    """Effects of ``nova init``, done or planned (``dry_run``)."""

    catalog: str
    creates_catalog: bool
    warehouse: str
    creates_warehouse: bool
    project_name: str | None
    project: Project
    channels: tuple[Registration, ...]
    dry_run: bool = field(kw_only=True)

    @property
    def has_conflicts(self) -> bool:
        return any(r.action in ("conflict", "refuse") for r in self.channels)


@click.command(cls=NovaCommand, checks_project=False)
@click.argument("name", required=False)
@click.option(
    "--template",
    metavar="|".join(DEFINED_PROJECTS),
    help=f"Kind of the new project; by default {next(iter(DEFINED_PROJECTS))}.",
)
@click.option("--replace", is_flag=True, help="Replace registered definitions that differ.")
@click.option("--dry-run", is_flag=True, help="Show what would be created and registered. Change nothing.")
def init(deployment: Deployment, name: str | None, template: str | None, replace: bool, dry_run: bool) -> CommandResult:
    """Create the catalog and the warehouse, and register the channels and bindings of the project, if one is
    configured. With NAME, lay out a new project in the folder NAME instead.

    An existing catalog or warehouse stays unchanged. Without --replace, a changed definition of a registered channel is
    refused. A changed merge model, and columns that a query drops or renames, take effect with the next base.

    A new project has a channel, a dataset in SQL, an asset in Python, sample data, a test, and a README with two
    commands. Its template is dagster (components and plain assets for dg), python (tasks) or sql (a folder of
    datasets). If a file exists, nothing is written.

    \b
    JSON: {"dry_run", "catalog": {"url", "made"}, "warehouse": {"folder", "made"},
           "project": NAME or null, "bindings": [NAME],
           "channels": [{"name", "action": "register"|"keep"|"replace"|"conflict"|"refuse",
                         "differences": [PART], "refusal": ERROR or null,
                         "by_base": {"dropped", "added", "readers"} or null}]}
    With NAME: {"dry_run", "folder", "template", "files": [PATH]}
    """
    if name is None:
        if template is not None:
            raise click.UsageError("--template needs NAME, the new project")
        deployment.load_project()
        return _initialise(deployment, replace, dry_run)
    if replace:
        raise click.UsageError("--replace is for registered definitions, and a new project has none")
    return _lay_out(plan_project(name, template or next(iter(DEFINED_PROJECTS)), Path.cwd()), dry_run)


def _lay_out(project: NewProject, dry_run: bool) -> CommandResult:
    if dry_run:
        project.check_nothing_exists()
    else:
        project.write()

    def show(console: Console) -> None:
        console.print(f"{project.folder}: {'would be laid out' if dry_run else 'laid out'} ({project.template})")
        for file in project.text_by_file:
            console.print(f"  {file}")
        if not dry_run:
            console.print(f"next: cd {project.folder.name}, and the two commands in README.md")

    files = list(project.text_by_file)
    data = {"dry_run": dry_run, "folder": str(project.folder), "template": project.template, "files": files}
    return CommandResult(data, show)


def _initialise(deployment: Deployment, replace: bool, dry_run: bool) -> CommandResult:
    creates_catalog = not deployment.catalog_exists
    warehouse = open_warehouse(deployment.settings.warehouse)
    creates_warehouse = not warehouse.exists
    with (
        deployment.open_read_only(with_project=True, needs_catalog=False)
        if dry_run
        else deployment.open(creation="anywhere")
    ) as store:
        initialisation = Initialisation(
            mask_address(deployment.settings.catalog),
            creates_catalog,
            warehouse.address,
            creates_warehouse,
            deployment.settings.project,
            store.project,
            tuple(_plan_registrations(store, replace)),
            dry_run=dry_run,
        )
        if not dry_run:
            warehouse.check_writable()
            store.register(store.project, replace=replace)
    return CommandResult(
        _initialisation_json(initialisation),
        lambda console: _show_initialisation(console, initialisation),
        exit_code=1 if initialisation.has_conflicts else 0,
    )


def _plan_registrations(store: Store, replace: bool) -> list[Registration]:
    registered_by_name = {s.channel.name: s.channel.as_json() for s in store.channels()}
    preview = store.catalog.definitions.preview_replacements(store.project.channels, store.project.bindings)
    registrations = []
    for channel in store.project.channels:
        new_definition = channel.as_json()
        registered_definition = registered_by_name.get(channel.name)
        differences = (
            ()
            if registered_definition is None
            else tuple(k for k in new_definition if new_definition[k] != registered_definition.get(k))
        )
        if registered_definition is None:
            action: RegistrationAction = "register"
        elif not differences:
            action = "keep"
        elif channel.name in preview.refused:
            action = "refuse"
        else:
            action = "replace" if replace else "conflict"
        refusal, by_base = preview.refused.get(channel.name), preview.by_base.get(channel.name)
        registrations.append(Registration(channel, action, differences, refusal, by_base))
    return registrations


def _initialisation_json(initialisation: Initialisation) -> dict[str, Any]:
    return {
        "dry_run": initialisation.dry_run,
        "catalog": {"url": initialisation.catalog, "made": initialisation.creates_catalog},
        "warehouse": {"folder": initialisation.warehouse, "made": initialisation.creates_warehouse},
        "project": initialisation.project_name,
        "bindings": [b.name for b in initialisation.project.bindings],
        "channels": [
            {
                "name": r.channel.name,
                "action": r.action,
                "differences": list(r.differences),
                "refusal": None if r.refusal is None else r.refusal.as_dict(),
                "by_base": None
                if r.by_base is None
                else columns_by_base_json(r.channel.name, r.by_base, initialisation.project),
            }
            for r in initialisation.channels
        ],
    }


def _show_initialisation(console: Console, initialisation: Initialisation) -> None:
    created_text = "would be created" if initialisation.dry_run else "created"
    console.print(
        f"catalog    {initialisation.catalog}: {created_text if initialisation.creates_catalog else 'exists'}"
    )
    console.print(
        f"warehouse  {initialisation.warehouse}: {created_text if initialisation.creates_warehouse else 'exists'}"
    )
    if initialisation.project_name is None:
        console.print("project    none; name one with --project, NOVA_PROJECT or project in [tool.nova]")
        return
    names = [b.name for b in initialisation.project.bindings]
    console.print(f"project    {initialisation.project_name}: {pluralize(len(names), 'binding')} ({', '.join(names)})")
    console.print()
    rows = []
    for r in initialisation.channels:
        words = _ACTION_TEXTS[r.action][0 if initialisation.dry_run else 1]
        different = f" (different: {', '.join(r.differences)})" if r.differences else ""
        rows.append((r.channel.name, format_merge_model(r.channel.merge), words + different))
    print_table(console, ("channel", "merge", ""), rows, shorten=("merge",))
    print_lines(console, (r.refusal.render() for r in initialisation.channels if r.refusal is not None))
    by_base = {r.channel.name: r.by_base for r in initialisation.channels if r.by_base is not None}
    show_columns_by_base(console, by_base, initialisation.project)


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
