"""The Python blocks of docs/CLIENT.md run as they stand, but for the addresses of the servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.client.conftest import ClusterThread

TEXT = (Path(__file__).parents[2] / "docs" / "CLIENT.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_document_runs(fake: ClusterThread, block: str) -> None:
    host, port = fake.cluster.addresses[0]
    source = block.replace('"127.0.0.1", 2181', f'"{host}", {port}')
    source = re.sub(r'"127\.0\.0\.1:2181[^"]*"', f'"{fake.hosts}"', source)
    assert "2181" not in source
    before = len(fake.requests())
    exec(compile(source, "docs/CLIENT.md", "exec"), {"__name__": "__main__"})
    assert len(fake.requests()) > before
    assert fake.do(lambda cluster: cluster.sessions) == {}, "what a reader copies leaves nothing open"
