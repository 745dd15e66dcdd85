"""Forms of older releases are read as what they are in today's, and their readers go when nobody can have them."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import msgpack
import pytest

from zraft import compatibility
from zraft.config.features import FEATURE_LEVEL_MIN
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Member, MemberRole
from zraft_core.errors import ProtocolError
from zraft_core.ids import Instance, ServerId

READERS = [f"{compatibility.__name__}.{one.name}" for one in pkgutil.iter_modules(compatibility.__path__)]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_says_who_wrote_its_form_and_goes_when_nobody_can_have_it(name: str) -> None:
    reader = import_module(name)
    assert reader.__doc__ is not None
    assert "Written by the releases" in reader.__doc__
    assert reader.LEVEL_MIN_WITHOUT > FEATURE_LEVEL_MIN, (
        f"remove {name}: no cluster of its time is taken any more"
    )


def old(*rows: object) -> bytes:
    packed: bytes = msgpack.packb((1, rows), use_bin_type=True)
    return packed


def test_members_from_before_roles_vote_or_learn_and_have_no_address() -> None:
    one, two = Instance(b"1" * 16), Instance(b"2" * 16)
    assert Membership.decode(old((2, two, False), (1, one, True))) == Membership(
        {
            ServerId(1): Member(one, MemberRole.VOTER),
            ServerId(2): Member(two, MemberRole.LEARNER),
        }
    )


@pytest.mark.parametrize(
    "row",
    [(1, b"1" * 16), (1, b"1" * 16, 1), (1, b"", True), (0, b"1" * 16, True), (True, b"1" * 16, True), "row"],
)
def test_a_row_that_is_none_of_that_time_is_refused(row: object) -> None:
    with pytest.raises(ProtocolError, match="MEMBERSHIP row"):
        Membership.decode(old(row))


def test_a_server_that_is_named_twice_is_refused_in_the_old_form_too() -> None:
    with pytest.raises(ProtocolError, match="twice"):
        Membership.decode(old((1, b"1" * 16, True), (1, b"2" * 16, True)))
