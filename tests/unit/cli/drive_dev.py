"""Runs the supervisor of `zraft dev` over fake servers, in a process of its own that tests send signals to.

Arguments: PORT DATA BEHAVIOUR…, one per server (see `fake_server`); `restart` as the last one restarts them.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import zraft.cli.dev
from zraft_core.address import Address
from zraft_core.errors import ZraftError

FAKE = Path(__file__).with_name("fake_server.py")


def main(port: int, data: Path, behaviours: Sequence[str]) -> int:
    def command(server: int, address: Address, *_rest: object) -> list[str]:
        return [sys.executable, str(FAKE), str(server), str(address), behaviours[server - 1]]

    (data / "cluster.key").write_text("made beforehand: the key is none of these tests' business")
    restart = behaviours[-1] == "restart"
    behaviours = behaviours[: len(behaviours) - restart]
    zraft.cli.dev.GRACE_S = 0.5  # type: ignore[misc]  # the grace of the real thing outlasts a test
    zraft.cli.dev.RESTART_S = 0.1  # type: ignore[misc]
    try:
        return zraft.cli.dev.run_dev(
            servers=len(behaviours), port=port, data=data, restart=restart, command=command
        )
    except ZraftError as error:
        print(f"Error: {error}", flush=True)
        return 9


if __name__ == "__main__":
    # The tests may run under nohup, whose ignored hang-ups are inherited, and then rightly ignored here too.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
