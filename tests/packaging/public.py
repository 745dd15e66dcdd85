"""Names that users may rely on: a line for each, so that what is taken away is a line that is gone.

`docs/reference/stability.md` says what the promise is. `make generated` writes the lines to `public_names.txt`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any, Final

import click

import onyxlog.main
import zraft.cli.main
from tests.packaging.modules import ROOTS
from zraft.admin.metrics import OF_ZOOKEEPER, OURS
from zraft.config.knobs import KNOBS

NAMES: Final = Path(__file__).with_name("public_names.txt")

MODULES: Final = (
    "onyxlog.api",
    "onyxlog.audits.session",
    "onyxlog.jobs.specification",
    "onyxlog.peer.log.native",
    "onyxlog.peer.settings",
    "onyxlog.tasks.runner",
    "zraft.testing",
    "zraft_client",
    "zraft_client.claims",
    "zraft_client.kafkalite",
    "zraft_client.recipes",
    "zraft_client.requests",
    "zraft_client.topics",
)
"""The modules whose `__all__` is for programs of users. All other modules may change in every release."""

PROGRAMS: Final = {"onyxlog": onyxlog.main.main, "zraft": zraft.cli.main.main}
"""Not `zraft-bench`: what it measures changes with what there is to measure."""


def public_names() -> list[str]:
    """All lines, sorted."""
    lines = {line for module in MODULES for line in _module(module)}
    lines |= {line for name, command in PROGRAMS.items() for line in _command(name, command)}
    lines |= {f"knob {name}" for name in KNOBS}
    lines |= {f"metric {metric.name}" for metric in (*OF_ZOOKEEPER, *OURS)}
    return sorted(lines)


def exported(module: str) -> dict[str, Any]:
    """The public names of a module, with what they are.

    Raises:
        AttributeError: it has no `__all__`, or that names what is not there.
    """
    found = importlib.import_module(module)
    return {name: getattr(found, name) for name in found.__all__}


def _module(module: str) -> Iterator[str]:
    for name, value in exported(module).items():
        yield f"{module}.{name}"
        if inspect.isclass(value):
            yield from _class(f"{module}.{name}", value)
        elif callable(value):
            yield from _parameters(f"{module}.{name}", value)


def _class(place: str, class_: type) -> Iterator[str]:
    # How an enumeration or an error is called is Python's, and differs between its releases.
    if not isinstance(class_, EnumMeta) and not issubclass(class_, BaseException):
        yield from _parameters(place, class_)
    ours = [one for one in class_.__mro__ if one.__module__.partition(".")[0] in ROOTS]
    for name in {name for one in ours for name in vars(one) if not name.startswith("_")}:
        yield f"{place}.{name}"
        value = inspect.getattr_static(class_, name)
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if inspect.isfunction(value):
            yield from _parameters(f"{place}.{name}", value)


def _parameters(place: str, called: Any) -> Iterator[str]:
    """`place(path)` for what must be given, `place(data=)` for what may be left out."""
    for parameter in inspect.signature(called).parameters.values():
        if not parameter.name.startswith("_") and parameter.name not in {"self", "cls"}:
            given = "" if parameter.default is parameter.empty else "="
            yield f"{place}({parameter.name}{given})"


def _command(place: str, command: click.Command) -> Iterator[str]:
    if command.hidden:
        return
    yield place
    context = click.Context(command, info_name=place)
    for parameter in command.params:  # not `get_params`, whose option for help depends on who asked before
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield from (f"{place} {name}" for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _command(f"{place} {name}", found)
