"""The script that measures etcd for README's table runs. It needs Debian's packages etcd-server and nghttp2-client."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.bench.etcd import CELLS, main

pytestmark = [pytest.mark.long, pytest.mark.processes]


def test_every_cell_is_measured() -> None:
    result = CliRunner().invoke(main, ["--seconds", "1", "--repeat", "1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for cell in CELLS:
        assert cell.name in result.output
