"""Errors of a fleet of peers, each with what to do about it."""

from __future__ import annotations

from zraft_core.errors import ConfigError, ZraftError


class OnyxlogError(ZraftError):
    """The base class of the errors that onyxlog raises on purpose."""


class EntryError(OnyxlogError, ValueError):
    """The log, the origin or a job's znode holds something that no peer of this version wrote.

    The message says where.
    """


class OvertakenError(OnyxlogError):
    """The next entries are gone: garbage collection moved the origin beyond them. Begin again at the origin."""

    retriable = True


class ParametersError(ConfigError):
    """Error of a peer that was started with other cluster parameters than the log was begun with."""


class WorkflowError(ConfigError):
    """A job cannot run. The message says where (job and part), and what was expected there."""


class UnsupportedError(ConfigError):
    """The protocol with which the log is reached has no such operation. The message says what to use instead."""
