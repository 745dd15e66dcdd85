"""Errors of consuming together."""

from __future__ import annotations

from zraft_client.errors import ClientError, FailedError


class PortError(ClientError):
    """The service did not answer; a command that was sent may have been carried out, or may yet be."""

    retriable = True


class CommitsScatteredError(ClientError):
    """The partition keeps no more gaps between commits.

    The message stays committed here, and is sent when some close.
    """

    retriable = True


class ClaimLostError(FailedError):
    """The message's claim is no longer this consumer's: another one may process it again."""
