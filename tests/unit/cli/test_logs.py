"""Log lines: one per event, in a form that a machine reads, without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
import structlog

from zraft.program.logs import configure_logging


@pytest.fixture
def lines() -> Iterator[Callable[..., io.StringIO]]:
    """Configures logging into a buffer, and puts everything back."""
    root = logging.getLogger()
    before = list(root.handlers), root.level
    configured = structlog.get_config()

    def start(format: str, level: str = "info") -> io.StringIO:
        out = io.StringIO()
        configure_logging(format=format, level=level, stream=out)
        return out

    yield start
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.configure(**configured)


def test_an_event_is_one_line_of_key_and_value(lines: Callable[..., io.StringIO]) -> None:
    out = lines("console")
    structlog.get_logger().info("became leader", term=7, because="heard\nnobody")
    [line] = out.getvalue().splitlines()
    assert line.startswith("timestamp=2")
    assert 'level=info event="became leader" ' in line
    assert "term=7" in line


def test_json_lines_hold_the_same_fields(lines: Callable[..., io.StringIO]) -> None:
    out = lines("json")
    structlog.get_logger().warning("slow fsync", duration_s=0.5)
    event = json.loads(out.getvalue())
    assert {"event": "slow fsync", "level": "warning", "duration_s": 0.5}.items() <= event.items()
    assert event["timestamp"].endswith("Z")


@pytest.mark.parametrize("format", ["console", "json"])
def test_bytes_are_never_shown_because_keys_and_passwords_are_bytes(
    lines: Callable[..., io.StringIO], format: str
) -> None:
    out = lines(format)
    structlog.get_logger().info("session opened", password=b"sixteen secrets!")
    assert "<16 bytes>" in out.getvalue()
    assert "secret" not in out.getvalue()


def test_events_below_the_level_are_left_out(lines: Callable[..., io.StringIO]) -> None:
    out = lines("console", "warning")
    structlog.get_logger().info("became follower")
    logging.getLogger("asyncio").info("using selector")
    assert out.getvalue() == ""


@pytest.mark.parametrize("format", ["console", "json"])
def test_the_standard_librarys_errors_come_out_the_same_way_with_their_traceback(
    lines: Callable[..., io.StringIO], format: str
) -> None:
    out = lines(format)
    try:
        raise RuntimeError("lost")
    except RuntimeError:
        logging.getLogger("some.library").exception("a callback failed")
    [line] = out.getvalue().splitlines()
    assert "a callback failed" in line
    assert "RuntimeError: lost" in line
    assert "level" in line
