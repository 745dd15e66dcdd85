"""`zraft serve …` with a bug from `tests.simulation.planted`: shows that a chaos run notices. Never use it for data.

python -m tests.chaos.planted_server NAME serve --id 1 …
"""

from __future__ import annotations

import runpy
import sys

from tests.simulation.planted import planted


def main() -> None:
    """Run the command line behind NAME with that bug in force."""
    name = sys.argv.pop(1)
    with planted(name):
        runpy.run_module("zraft", run_name="__main__")


if __name__ == "__main__":
    main()
