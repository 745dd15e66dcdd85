"""Which log a command opens, and what it says if it cannot."""

from __future__ import annotations

import sys

import pytest

from onyxlog.peer.opening import Service, opener
from zraft.address import Address
from zraft.errors import ConfigError

HOSTS = (Address("127.0.0.1", 2181),)


def test_without_kazoo_the_zookeeper_service_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("onyxlog.peer.zookeeper_log", "onyxlog.peer.kazoo_session"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ConfigError, match=r"pip install 'zraft\[zookeeper\]'"):
        opener(Service.ZOOKEEPER, HOSTS, "tests")


def test_zrafts_own_service_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    assert callable(opener(Service.ZRAFT, HOSTS, "tests"))
