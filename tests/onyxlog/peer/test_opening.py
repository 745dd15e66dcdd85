"""A service says what it needs, such as kazoo, and commands know where to look for it."""

from __future__ import annotations

import sys

import click
import pytest

from onyxlog.command_options import service_options
from onyxlog.peer.log.opening import Service, opener
from zraft.cli.client_options import connects
from zraft_core.address import Address

HOSTS = (Address("127.0.0.1", 2181),)


def test_zrafts_own_service_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    assert callable(opener(Service.ZRAFT, HOSTS, "tests"))


def test_commands_of_fleets_look_for_servers_where_others_do() -> None:
    """On a cluster of `zraft dev` of which one server is down, too."""
    wanted = click.command()(connects(lambda: None)).params[0].default
    assert click.command()(service_options(lambda: None)).params[0].default == wanted
