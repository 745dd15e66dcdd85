"""Meaning of an operator's request about members, given who the members are.

Adding, moving and promoting are verbs of their own: a mistyped number must not give a healthy server another address.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from attrs import frozen

from zraft.operator.requests import Done, MemberAdd, MemberMove, MemberPromote, MemberRemove, Refused
from zraft.raft.messages import Member
from zraft.tree.members import EVERYWHERE, Wanted, WantedMember
from zraft_core.ids import ServerId
from zraft_core.znodes.member_roles import OBSERVER, PARTICIPANT, REMOVE

MemberRequest = MemberAdd | MemberMove | MemberPromote | MemberRemove

_VOTES = "votes as soon as it has caught up"


@frozen
class MemberChange:
    """One row of a MEMBERS command, and what to tell the operator when it was applied."""

    server: ServerId
    part: int
    address: str
    text: str


def change_of(
    request: MemberRequest, wanted: Wanted, present: Mapping[ServerId, Member]
) -> MemberChange | Done | Refused:
    """Return the change that `request` means; `Done` if it is so already.

    Args:
        wanted: who is to belong, {} until the leader has written it down; then every request is a change, which the
            log refuses for now.
        present: who belongs; servers that are still leaving are in it, but not in `wanted`.
    """
    server = request.server
    member = wanted.get(server)
    match request:
        case MemberAdd(_, address, observer):
            part = OBSERVER if observer else PARTICIPANT
            problem = _unusable(server, address, wanted) or _elsewhere(server, address, member, present)
            if problem is not None:
                return problem
            if member is None or not member.address:
                return MemberChange(server, part, address, f"server {server} is taken in as it shows up")
            there = f"server {server} is there already, at {address}"
            if member.voter is not observer:
                return Done(there)
            then = "follows as an observer from now on" if observer else _VOTES
            return MemberChange(server, part, address, f"{there}; it {then}")
        case MemberMove(_, address):
            if wanted and member is None:
                return _no_member(server, wanted, f"; to let it in: `zraft member add {server} {address}`")
            problem = _unusable(server, address, wanted)
            if problem is not None:
                return problem
            if member is not None and member.address == address:
                return Done(f"server {server} is there already, at {address}")
            before = member.address if member is not None else ""
            return MemberChange(
                server,
                _part_of(member),
                address,
                f"server {server} is at {address} from now on{f', no longer at {before}' if before else ''}: start it "
                "there with the data directory that it has, or with an empty one",
            )
        case MemberPromote():
            if wanted and member is None:
                return _no_member(server, wanted)
            address = member.address if member is not None else ""
            return MemberChange(server, PARTICIPANT, address, f"server {server} {_VOTES}")
        case MemberRemove():
            if wanted and member is None:
                return _no_member(server, wanted)
            return MemberChange(server, REMOVE, "", f"server {server} is taken out")
        case _:
            assert_never(request)


def _part_of(member: WantedMember | None) -> int:
    return OBSERVER if member is not None and not member.voter else PARTICIPANT


def _no_member(server: ServerId, wanted: Wanted, then: str = "") -> Refused:
    return Refused(f"server {server} is no member; the members are {', '.join(map(str, wanted))}{then}")


def _unusable(server: ServerId, address: str, wanted: Wanted) -> Refused | None:
    """Return why nobody can be at this address."""
    if address.startswith(EVERYWHERE):
        return Refused(
            f"server {server} cannot be at {address}: that only says where a server listens; name the address at which "
            "the others and the clients reach it"
        )
    holder = next((other for other, member in wanted.items() if member.address == address), server)
    if holder != server:
        return Refused(f"server {server} cannot be at {address}: {address} is where server {holder} is")
    return None


def _elsewhere(
    server: ServerId, address: str, member: WantedMember | None, present: Mapping[ServerId, Member]
) -> Refused | None:
    """Return why a server that is at another address is not added at this one."""
    if member is not None:
        if member.address in ("", address):
            return None
        return Refused(
            f"server {server} is a member at {member.address}, expected a number that is free. To change where it is: "
            f"`zraft member move {server} {address}`"
        )
    leaving = present.get(server)
    if leaving is None or leaving.address in ("", address):
        return None
    return Refused(
        f"server {server} is still leaving, from {leaving.address}: it can be added at {address} when `zraft member list` "
        "does not show it any more",
        retriable=True,
    )
