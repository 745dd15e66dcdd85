"""Clusters of real servers, each of this release or of the last one."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.processes.members import GrowingCluster
from tests.upgrade.golden import path_of
from zraft.operator.requests import SettingsListing, SettingsShow

OLD_LEVEL: Final = 4
"""The newest feature level of the last release."""


class MixedCluster(GrowingCluster):
    """Servers of which some run the code of another tree.

    Attributes:
        release: that tree; None if no server is ever to run it.
        old: the servers that run it from their next start on.
        settings: `--set` of every server.
    """

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = 3,
        env: Mapping[str, str] | None = None,
        release: Path | None = None,
        old: Iterable[int] = (),
        settings: tuple[str, ...] = (),
    ) -> None:
        self.release = release
        self.old = set(old)
        self.settings = settings
        super().__init__(directory, servers=servers, env=env)

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        for setting in self.settings:
            command += ["--set", setting]
        if number not in self.old:
            return command
        assert self.release is not None
        return ["env", f"PYTHONPATH={path_of(self.release)}", *command]

    def level(self) -> int:
        """The feature level in force."""
        return self.operate(SettingsShow(), SettingsListing).feature_level

    def change_release(self, number: int, *, old: bool) -> None:
        """Stop it as an operator does, and start the other release on its directory."""
        assert self.kill(number, signal.SIGTERM) == 0
        self.old.discard(number)
        if old:
            self.old.add(number)
        self.start(number)
        self.wait_ready()
