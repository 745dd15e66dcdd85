"""What a service needs to be there: kazoo is for the one that needs it."""

from __future__ import annotations

import sys

import pytest

from onyxlog.peer.log.opening import Service, opener
from zraft_core.address import Address

HOSTS = (Address("127.0.0.1", 2181),)


def test_zrafts_own_service_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    assert callable(opener(Service.ZRAFT, HOSTS, "tests"))
