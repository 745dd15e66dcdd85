"""`zraft` as a release that knows no feature level above 1: run by tests, as `python old_release.py serve …`."""

from __future__ import annotations

from zraft.cli.main import main
from zraft.config import features

if __name__ == "__main__":
    features.FEATURE_LEVEL_MAX = 1  # type: ignore[misc]
    main()
