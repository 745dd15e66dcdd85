"""Run the command `zraft-bench` as `python -m zraft_bench`."""

from __future__ import annotations

from zraft_bench.main import main

if __name__ == "__main__":
    main()
