"""`python -m zraft_bench` is `zraft-bench`."""

from __future__ import annotations

from zraft_bench.main import main

if __name__ == "__main__":
    main()
