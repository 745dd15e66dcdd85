"""What each native request is decoded as, and what is wrong with those that are refused, line by line.

`native_requests.txt` has a message and, indented below it, its request or its error. To take over what the code says
now, run `python -m tests.unit.wire.test_native_requests` and look at the difference.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import attrs
import msgpack
import pytest

from zraft_core.errors import MarshallingError
from zraft_core.wire.native.requests import decode_request, id_of
from zraft_core.wire.native.zatt import decode_one_shot

TRANSCRIPT = Path(__file__).with_name("native_requests.txt")


def transcript() -> list[tuple[str, str]]:
    """The messages of the transcript, each with what it comes to."""
    lines = TRANSCRIPT.read_text(encoding="utf-8").splitlines()
    return list(zip(lines[::2], [line.removeprefix("    ") for line in lines[1::2]], strict=True))


def outcome(message: str) -> str:
    """What a message comes to that is written as a Python literal."""
    sent: Any = msgpack.unpackb(msgpack.packb(ast.literal_eval(message)), use_list=False)
    try:
        request = decode_one_shot(sent) if id_of(sent) is None else decode_request(sent)
    except MarshallingError as error:
        return f"refused: {error}"
    fields = attrs.asdict(request, recurse=False)  # unlike repr this shows passwords and messages
    return f"{type(request).__name__} {fields}"


@pytest.mark.parametrize(("message", "expected"), transcript())
def test_a_message_is_decoded_or_refused_as_the_transcript_says(message: str, expected: str) -> None:
    assert outcome(message) == expected


def test_the_transcript_has_every_type_of_request() -> None:
    types = {ast.literal_eval(message).get("type") for message, _ in transcript()}
    refused = outcome("{'id': 1, 'type': 'nonsense'}")
    known = refused.partition("expected one of ")[2].split(", ")
    assert len(known) == 45
    assert set(known) <= types


if __name__ == "__main__":
    lines = [f"{message}\n    {outcome(message)}\n" for message, _ in transcript()]
    TRANSCRIPT.write_text("".join(lines), encoding="utf-8")
