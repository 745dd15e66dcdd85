"""What goes over wires and stands in files stays as releases write it, byte for byte.

Servers of two releases talk to each other, and read what the other wrote (D-5): whoever changes a line of `records.txt`
changes a format, which then needs a number of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.golden import samples

GOLDEN = dict(
    line.split(" ")
    for line in (Path(__file__).parent / "records.txt").read_text(encoding="ascii").splitlines()
)
SAMPLES = dict(samples.samples())


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_a_record_stay_what_they_are(name: str) -> None:
    assert SAMPLES[name].hex() == GOLDEN[name]


def test_golden_bytes_are_of_the_samples_and_of_nothing_else() -> None:
    assert list(GOLDEN) == list(SAMPLES)
