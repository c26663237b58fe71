"""``nova completion``: completion of commands, channels, bindings and partitions in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment

_VARIABLE = "_NOVA_COMPLETE"


@click.command(cls=NovaCommand, checks_project=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(deployment: Deployment, shell: str) -> CommandResult:
    """Print the script by which a shell completes the arguments of nova.

    \b
    bash: eval "$(nova completion bash)"          in ~/.bashrc
    zsh:  eval "$(nova completion zsh)"           in ~/.zshrc
    fish: nova completion fish | source           in ~/.config/fish/config.fish

    Names of channels, bindings and partitions come from the catalog of the folder in which the shell is.

    JSON: {"shell", "script"}
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(click.get_current_context().find_root().command, {}, "nova", _VARIABLE).source()
    return CommandResult({"shell": shell, "script": script}, lambda console: console.out(script, highlight=False))
