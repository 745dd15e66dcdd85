"""Logging of a server process: one line per event on standard error, as key=value or JSON.

Events are stable lower-case phrases with fields, `log.info("became leader", term=7)`, from
`structlog.get_logger()`. What the standard library and asyncio log goes the same way.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(*, format: str, level: str, stream: TextIO | None = None) -> None:
    """Send all log events of this process to `stream` (standard error unless given).

    Call it once, in `main`, before anything logs. Not for library use: an embedding program
    configures structlog itself.
    """
    stream = sys.stderr if stream is None else stream
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_bytes,
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor
    if format == "json":
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "event"], bool_as_flag=False
        )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # A library's debug output is not ours to vouch for: it may hold keys and data.
    root.setLevel(max(LEVELS[level], logging.INFO))


def without_bytes(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show bytes by their length only: keys, session passwords and znode data are bytes, and none may be logged.

    What identifies something, such as an instance, is logged as the hexadecimal text its caller makes of it.
    """
    for name, value in event.items():
        if isinstance(value, bytes | bytearray | memoryview):
            event[name] = f"<{len(value)} bytes>"
    return event
