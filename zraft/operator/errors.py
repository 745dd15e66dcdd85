"""Errors between an operator's command and the cluster."""

from __future__ import annotations

from zraft_core.errors import ZraftError


class OperatorError(ZraftError):
    """A command was not carried out, or may have been; the message says which, and what to do."""


class RefusedError(OperatorError):
    """A server refused the command."""


class UncertainError(OperatorError):
    """The connection was lost after the request left: it may have been carried out, or not."""
