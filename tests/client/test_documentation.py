"""The Python blocks of docs/CLIENT.md and docs/KAFKALITE.md run as they stand, but for the addresses of the servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.client.topics.conftest import TopicThread, fake_topics

__all__ = ["fake_topics"]

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    block
    for name in ("CLIENT.md", "KAFKALITE.md")
    for block in re.findall(
        r"^```python\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_documents_runs(fake_topics: TopicThread, block: str) -> None:
    fake = fake_topics
    host, port = fake.cluster.addresses[0]
    source = block.replace('"127.0.0.1", 2181', f'"{host}", {port}')
    source = re.sub(r'"127\.0\.0\.1:2181[^"]*"', f'"{fake.hosts}"', source)
    assert "2181" not in source
    before = fake.do(lambda cluster: len(cluster.requests))
    exec(compile(source, "docs", "exec"), {"__name__": "__main__"})
    assert fake.do(lambda cluster: len(cluster.requests)) > before
    assert fake.do(lambda cluster: cluster.sessions) == {}, "what a reader copies leaves nothing open"
