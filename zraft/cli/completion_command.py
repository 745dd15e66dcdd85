"""The command `zraft completion`: the script with which a shell completes commands, options and their choices."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "zraft"
VARIABLE: Final = "_ZRAFT_COMPLETE"
"""The variable by which a script asks the program for completions, as click names it."""


@click.command(short_help="Print the script that completes commands in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes the commands of `zraft`, their options and choices.

    \b
    Try it in this shell:
        source <(zraft completion bash)
    \b
    Install it:
        zraft completion bash > ~/.local/share/bash-completion/completions/zraft
        zraft completion zsh  > ~/.zsh/completions/_zraft       # with `fpath=(~/.zsh/completions $fpath)` before compinit
        zraft completion fish > ~/.config/fish/completions/zraft.fish

    The script asks `zraft` itself, so it need not be printed again after an upgrade. Bash must be 4.4 or newer.
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows all of them"
    group = click.get_current_context().find_root().command
    click.echo(found(group, {}, PROGRAM, VARIABLE).source())
