"""Servers whose state machines err when told to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.processes import erring_server
from tests.processes.cluster import Cluster

PROGRAM: Final = Path(erring_server.__file__)


class ErringCluster(Cluster):
    """Stands before another kind of cluster among the bases of a class."""

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        python, serve = command.index(sys.executable), command.index("serve")
        return [*command[: python + 1], str(PROGRAM), str(self._flag(number)), *command[serve:]]

    def _flag(self, number: int) -> Path:
        return self.directory / f"err-{number}"

    def err(self, number: int, data: bytes = b"otherwise") -> None:
        """The next set of /wrong, or delivery, stores `data` at server `number`; until then sets of /slow are slow there."""
        temporary = self._flag(number).with_suffix(".tmp")
        temporary.write_bytes(data)
        temporary.rename(self._flag(number))

    def err_no_more(self, number: int) -> None:
        self._flag(number).unlink()

    def erred(self, number: int) -> bool:
        return not self._flag(number).exists()
