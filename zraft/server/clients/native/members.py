"""Meaning of Zatt's `config` request, which names members by address, as a change of the numbered members.

Pure; whether it may be made, and is a change at all, is judged when it is applied (docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Mapping

from zraft.tree.members import WantedMember
from zraft_core.address import parse_address
from zraft_core.errors import Code, ConfigError
from zraft_core.ids import SERVER_ID_MAX, SERVER_ID_MIN, ServerId
from zraft_core.wire.native.failures import text_of
from zraft_core.wire.native.member_requests import Config
from zraft_core.znodes.member_roles import PARTICIPANT, REMOVE

Change = tuple[int, int, str]
"""(server, part, address), as in the command MEMBERS."""

Refusal = tuple[Code, str]
"""Why there is no such change, and in words."""


def change_of(config: Config, members: Mapping[ServerId, WantedMember]) -> Change | Refusal:
    """Return the change that a request means.

    A member is added under the lowest free number, unless the request has one; told apart by
    length.
    """
    try:
        address = str(parse_address(config.address, "config: address"))
    except ConfigError as error:
        return Code.BAD_ARGUMENTS, str(error)
    if not members:
        return Code.RECONFIG_IN_PROGRESS, text_of(Code.RECONFIG_IN_PROGRESS)
    at = next((server for server, member in members.items() if member.address == address), None)
    if not config.add:
        if at is None or config.server not in (None, at):
            return Code.BAD_ARGUMENTS, f"config: no such member at {address}"
        return at, REMOVE, ""
    if config.server is not None:
        known = members.get(ServerId(config.server))
        if known is not None and known.address not in ("", address):
            return Code.BAD_ARGUMENTS, (
                f"config: server {config.server} is a member at {known.address}, expected an id that is free; to change "
                f"where it is: `zraft member move {config.server} {address}`"
            )
        return config.server, PARTICIPANT, address
    if at is not None:
        return at, PARTICIPANT, address
    free = next((n for n in range(SERVER_ID_MIN, SERVER_ID_MAX + 1) if ServerId(n) not in members), None)
    if free is None:
        return Code.BAD_ARGUMENTS, f"config: all server ids up to {SERVER_ID_MAX} are taken"
    return free, PARTICIPANT, address
