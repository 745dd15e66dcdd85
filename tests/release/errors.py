"""Why there is no release: what was found, what was expected, what to do."""

from __future__ import annotations


class ReleaseError(Exception):
    """Something is not as a release needs it. Nothing was tagged."""
