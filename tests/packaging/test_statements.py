"""What counts as a statement, and whose it is."""

from __future__ import annotations

import pytest

from tests.packaging.statements import room_of, statements


def test_docstrings_comments_and_lines_do_not_count() -> None:
    assert statements('"""What it is."""\n\n# why\nx = (\n    1\n)\n') == 1
    assert statements('def f():\n    """Do it."""\n    return 1\n') == 2
    assert statements('class A:\n    x: int = 0\n    """What it means."""\n') == 2


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("zraft/server/engine/driver.py", "zraft/server/engine"),
        ("zraft/server/__init__.py", "zraft/server"),
        ("zraft/tree/image/writer.py", "zraft/tree"),
        ("client/zraft_core/ids.py", "client/zraft_core"),
        ("onyxlog/peer/log/port.py", "onyxlog"),
        ("tests/unit/tree/test_acl.py", "tests/unit"),
        ("tests/conftest.py", "tests"),
        ("setup.py", "."),
    ],
)
def test_a_file_belongs_to_the_room_of_its_folder(path: str, room: str) -> None:
    assert room_of(path) == room
