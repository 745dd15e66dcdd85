"""Log lines of servers inside a test: they go to the standard library's logger `zraft.server`, from the level warning on.

Servers log by structlog. If the program under test configures structlog itself, their lines go where its own go.
"""

from __future__ import annotations

import logging
import threading

import structlog

from zraft.program.logs import without_bytes

LOGGER = "zraft.server"

_lock = threading.Lock()
_nowhere = logging.NullHandler()
_users = 0
_ours = False


def use_logger() -> None:
    """Send what servers log to the standard library's logger, unless the program has configured structlog itself."""
    global _users, _ours
    with _lock:
        _users += 1
        if not structlog.is_configured():
            _ours = True
            # Without any handler, Python would print warnings to standard error.
            logging.getLogger(LOGGER).addHandler(_nowhere)
            structlog.configure(
                processors=[
                    structlog.stdlib.filter_by_level,
                    without_bytes,
                    structlog.processors.format_exc_info,
                    structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False),
                ],
                wrapper_class=structlog.stdlib.BoundLogger,
                logger_factory=_factory,
                cache_logger_on_first_use=False,
            )


def _factory(*_: object) -> logging.Logger:
    return logging.getLogger(LOGGER)


def release_logger() -> None:
    """Leave structlog as it was before the first server, once the last one has ended."""
    global _users, _ours
    with _lock:
        _users -= 1
        if _users == 0 and _ours:
            _ours = False
            logging.getLogger(LOGGER).removeHandler(_nowhere)
            # The program may have configured structlog meanwhile.
            if structlog.get_config()["logger_factory"] is _factory:
                structlog.reset_defaults()
