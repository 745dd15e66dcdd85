"""What the traps are sprung on: one server in memory with a client, or three simulated servers."""

from __future__ import annotations

import pytest

from tests.traps.ensemble import Ensemble
from tests.traps.one import Server
from tests.traps.peer import Peer


@pytest.fixture
def server() -> Server:
    """One server in memory."""
    return Server()


@pytest.fixture
def client(server: Server) -> Peer:
    """A client of `server` with a session, at address 10.0.0.7."""
    return server.peer()


@pytest.fixture
def ensemble() -> Ensemble:
    """Three simulated servers, one of which leads."""
    return Ensemble()
