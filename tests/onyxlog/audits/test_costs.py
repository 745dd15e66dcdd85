"""Costs are those of a process and all below it, as the kernel tells them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from onyxlog.audits.costs import ProcessMeter, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def process(proc: Path, pid: int, parent: int, name: str = "python", cpu: int = 5, pages: int = 10) -> None:
    fields = ["S", str(parent), *["0"] * 9, str(cpu), "1", "2", "3", *["0"] * 6, str(pages)]
    (proc / str(pid)).mkdir(exist_ok=True)
    # As a whole, as the kernel does: a meter may read meanwhile.
    written = proc / str(pid) / "written"
    written.write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    written.rename(proc / str(pid) / "stat")


def test_a_tree_is_a_process_and_all_below_it_whatever_they_are_called(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 10, name="a ) S 1 (")
    process(tmp_path, 12, 11)
    process(tmp_path, 13, 1)
    (tmp_path / "self").mkdir()
    (tmp_path / "14").mkdir()  # it has ended
    found = tree(10, tmp_path)
    assert sorted(one.pid for one in found) == [10, 11, 12]
    assert {(one.cpu_ticks, one.resident_pages) for one in found} == {(11, 10)}


def test_what_is_used_between_begin_and_end_is_counted(tmp_path: Path) -> None:
    me = os.getpid()
    process(tmp_path, me, 1, cpu=100, pages=1000)
    process(tmp_path, me + 1, me, cpu=50, pages=500)
    end = ProcessMeter(tmp_path).measured()
    process(tmp_path, me, 1, cpu=100 + os.sysconf("SC_CLK_TCK"), pages=1000)
    cost = end()
    assert cost.cpu_s == 1.0
    assert cost.peak_mb == pytest.approx(1500 * os.sysconf("SC_PAGE_SIZE") / 1e6)


def test_this_process_can_be_measured() -> None:
    end = ProcessMeter().measured()
    assert sum(range(200_000))
    cost = end()
    assert cost.cpu_s >= 0
    assert cost.peak_mb > 5
