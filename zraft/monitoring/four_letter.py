"""The texts of the four-letter words; monitoring tools parse them, so they are ZooKeeper's, character by character.

A word is answered and the connection closed. Words that ZooKeeper does not know are no words but lengths of
frames, and far too large ones: `zraft_core.wire.framing` ends such a connection without an answer.

What could be long is bounded (`LISTED_MAX`); a last line then says how much is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from zraft.monitoring.monitor import monitor_values
from zraft.monitoring.statistics import (
    FULL_VERSION,
    LISTED_MAX,
    ZOOKEEPER_VERSION,
    ConnectionStatistics,
    LeaderStatistics,
    Reports,
    ServerStatistics,
)
from zraft.tree.members import ELECTION_PORT, server_line
from zraft_core.wire.framing import ARGUMENT_BYTES, FOUR_LETTER_WORDS

__all__ = [
    "FULL_VERSION",
    "HARMLESS_WORDS",
    "NOT_SERVING",
    "ZOOKEEPER_VERSION",
    "ConnectionStatistics",
    "LeaderStatistics",
    "ServerStatistics",
    "allowed_words",
    "answer",
]

HARMLESS_WORDS: Final = frozenset(
    {"conf", "cons", "dirs", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srvr", "stat", "wchs"}
)
"""Allowed unless configured otherwise: they change nothing, tell no path or data of a znode, and cost little.

Not among them: `crst`, `srst` and `stmk` change what others see; `dump`, `wchc` and `wchp` show paths and session
ids to everybody who can connect, whatever the ACLs say.
"""

ALL: Final = "*"

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests\n"


def allowed_words(configured: Iterable[str]) -> frozenset[str]:
    """Return the words of an allow list, in which `*` stands for all."""
    words = frozenset(configured)
    return FOUR_LETTER_WORDS if ALL in words else words


def answer(
    word: str, reports: Reports, allowed: Collection[str] = HARMLESS_WORDS, argument: bytes = b""
) -> bytes:
    """Return the whole answer to `word`; `argument` is what follows it (the mask of `stmk`)."""
    assert word in FOUR_LETTER_WORDS, f"{word!r} is no four-letter word"
    if word not in allowed:
        return f"{word} is not executed because it is not in the whitelist.\n".encode()
    if word == "stmk":
        return _set_trace_mask(reports, argument)
    if word not in ANSWERED_ALWAYS and not reports.serving:
        return NOT_SERVING.encode()
    return _TEXTS[word](reports).encode()


ANSWERED_ALWAYS: Final = frozenset({"envi", "gtmk", "isro", "ruok", "stmk"})
"""The words that are also answered by a server that does not serve, as in ZooKeeper."""


def _ruok(_reports: Reports) -> str:
    # Says only that the process answers, even without a leader; no newline either.
    return "imok"


def _isro(reports: Reports) -> str:
    return "ro" if reports.read_only else "rw" if reports.serving else "null"


def _envi(reports: Reports) -> str:
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in reports.environment())


def _gtmk(reports: Reports) -> str:
    return str(reports.trace_mask())


def _set_trace_mask(reports: Reports, argument: bytes) -> bytes:
    if len(argument) != ARGUMENT_BYTES["stmk"]:
        return b""
    mask = int.from_bytes(argument, "big", signed=True)
    reports.set_trace_mask(mask)
    return str(mask).encode()


def _mntr(reports: Reports) -> str:
    statistics = reports.server()
    if statistics is None:
        return NOT_SERVING
    return "".join([f"zk_{name}\t{value}\n" for name, value in monitor_values(statistics).items()])


def _srvr(reports: Reports) -> str:
    statistics = reports.server()
    if statistics is None:
        return NOT_SERVING
    return f"Zookeeper version: {statistics.version}\n" + _numbers(statistics)


def _stat(reports: Reports) -> str:
    statistics = reports.server()
    if statistics is None:
        return NOT_SERVING
    listing = reports.connections()
    clients = "".join([_connection(one, brief=True) + "\n" for one in listing.items])
    return (
        f"Zookeeper version: {statistics.version}\nClients:\n{clients}{_rest(listing.left_out, 'connections')}\n"
        + _numbers(statistics)
    )


def _numbers(statistics: ServerStatistics) -> str:
    text = (
        f"Latency min/avg/max: "
        f"{statistics.latency_min_ms}/{statistics.average_latency_ms}/{statistics.latency_max_ms}\n"
        f"Received: {statistics.received}\n"
        f"Sent: {statistics.sent}\n"
        f"Connections: {statistics.connection_count}\n"
        f"Outstanding: {statistics.outstanding}\n"
        f"Zxid: {statistics.zxid:#x}\n"
        f"Mode: {statistics.mode}\n"
        f"Node count: {statistics.node_count}\n"
    )
    leader = statistics.leader
    if leader is not None:
        sizes = f"{leader.last_proposal_size}/{leader.min_proposal_size}/{leader.max_proposal_size}"
        text += f"Proposal sizes last/min/max: {sizes}\n"
    return text


def _cons(reports: Reports) -> str:
    listing = reports.connections()
    lines = "".join([_connection(one, brief=False) + "\n" for one in listing.items])
    return f"{lines}{_rest(listing.left_out, 'connections')}\n"


def _connection(one: ConnectionStatistics, *, brief: bool) -> str:
    # [1]: what the selector waits for in ZooKeeper; 1 is reading, 0 nothing.
    head = f" /{one.address}[{int(one.reading)}](queued={one.queued},recved={one.received},sent={one.sent}"
    of = one.session
    if brief or of is None:
        return head + ")"
    return (
        f"{head},sid={_id(of.session)},lop={of.last_operation},est={of.established_ms},to={of.timeout_ms},"
        f"lcxid={_id(of.last_cxid)},lzxid={_id(of.last_zxid)},lresp={of.last_response_ms},llat={of.last_latency_ms},"
        f"minlat={of.min_latency_ms},avglat={of.avg_latency_ms},maxlat={of.max_latency_ms})"
    )


def _conf(reports: Reports) -> str:
    c = reports.configuration()
    text = (
        f"clientPort={c.client_port}\nsecureClientPort={c.secure_client_port}\n"
        f"dataDir={c.data}\ndataDirSize={c.data_size}\ndataLogDir={c.data}\ndataLogSize={c.log_size}\n"
        f"tickTime={c.tick_time_ms}\nmaxClientCnxns={c.connections_per_address_max}\n"
        f"minSessionTimeout={c.session_timeout_ms_min}\nmaxSessionTimeout={c.session_timeout_ms_max}\n"
        f"clientPortListenBacklog={c.listen_backlog}\nserverId={c.server}\n"
    )
    if c.standalone:
        return text
    # initLimit, syncLimit and electionAlg are left out: nothing here has their meaning.
    members = "".join(f"{server_line(m.server, m.address, voter=not m.observer)}\n" for m in c.members)
    return text + (
        f"electionPort={ELECTION_PORT}\nquorumPort={c.client_port}\npeerType=0\nmembership: \n{members}version=0"
    )


def _dirs(reports: Reports) -> str:
    c = reports.configuration()
    return f"datadir_size: {c.data_size}\nlogdir_size: {c.log_size}\n"


def _hash(reports: Reports) -> str:
    found = reports.digest()
    return "" if found is None else f"{found[0]:x}: {found[1]}\n"


def _dump(reports: Reports) -> str:
    dump = reports.dump()
    lines = ["SessionTracker dump:"]
    if dump.expiries is None:
        lines.append(f"Global Sessions({dump.sessions.total}):")
        lines += [f"{_id(session)}\t{timeout}ms" for session, timeout in dump.sessions.items]
        left = dump.sessions.left_out
    else:
        by_time = dump.expiries.by_time
        lines.append(f"Session Sets ({len(by_time)})/({dump.expiries.total}):")
        for at, sessions in by_time:
            lines.append(f"{len(sessions)} expire at {_date(at)}:")
            lines += [f"\t{_id(session)}" for session in sessions]
        left = dump.expiries.total - sum(len(sessions) for _, sessions in by_time)
    lines += _rest_line(left, "sessions")
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({dump.owners}):"]
    for session, paths in dump.ephemerals.items:
        lines.append(f"{_id(session)}:")
        lines += [f"\t{path}" for path in paths]
    listed = sum(len(paths) for _, paths in dump.ephemerals.items)
    lines += _rest_line(dump.ephemerals.total - listed, "ephemerals")
    lines += ["Connections dump:", f"Connections Sets ({len(dump.connections)})/({dump.connection_count}):"]
    for at, connections in dump.connections:
        lines.append(f"{len(connections)} expire at {_date(at)}:")
        lines += [f"\tip: /{address} sessionId: {_id(session)}" for address, session in connections]
    listed = sum(len(connections) for _, connections in dump.connections)
    lines += _rest_line(dump.connection_count - listed, "connections")
    return "\n".join(lines) + "\n"


def _wchs(reports: Reports) -> str:
    summary = reports.watch_summary()
    return (
        f"{summary.connections} connections watching {summary.paths} paths\nTotal watches:{summary.watches}\n"
    )


def _wchc(reports: Reports) -> str:
    found = reports.watches_by_session()
    lines: list[str] = []
    for session, paths in found.items:
        lines.append(_id(session))
        lines += [f"\t{path}" for path in paths]
    lines += _rest_line(found.total - sum(len(paths) for _, paths in found.items), "watched paths")
    return "\n".join([*lines, "", ""]) if lines else "\n"


def _wchp(reports: Reports) -> str:
    found = reports.watches_by_path()
    lines: list[str] = []
    for path, sessions in found.items:
        lines.append(path)
        lines += [f"\t{_id(session)}" for session in sessions]
    lines += _rest_line(found.total - sum(len(sessions) for _, sessions in found.items), "watchers")
    return "\n".join([*lines, "", ""]) if lines else "\n"


def _srst(reports: Reports) -> str:
    reports.reset_server()
    return "Server stats reset.\n"


def _crst(reports: Reports) -> str:
    reports.reset_connections()
    return "Connection stats reset.\n"


_TEXTS: Final[dict[str, Callable[[Reports], str]]] = {
    "conf": _conf,
    "cons": _cons,
    "crst": _crst,
    "dirs": _dirs,
    "dump": _dump,
    "envi": _envi,
    "gtmk": _gtmk,
    "hash": _hash,
    "isro": _isro,
    "mntr": _mntr,
    "ruok": _ruok,
    "srst": _srst,
    "srvr": _srvr,
    "stat": _stat,
    "wchc": _wchc,
    "wchp": _wchp,
    "wchs": _wchs,
}
assert _TEXTS.keys() | {"stmk"} == FOUR_LETTER_WORDS


def _id(number: int) -> str:
    """Return a signed 64-bit number as Java prints it in hexadecimal."""
    return f"0x{number & 0xFFFF_FFFF_FFFF_FFFF:x}"


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _date(wall_ms: int) -> str:
    """Return a date as Java prints it, in UTC.

    It is computed here, because the calendar of the standard library knows the clock.
    """
    days, seconds = divmod(wall_ms // 1000, 86_400)
    # Days since 0000-03-01, in eras of 400 years that begin with March: leap days come last (Hinnant, chrono).
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = (march_month + 2) % 12
    year = era * 400 + year_of_era + (month < 2)
    time_of_day = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_DAYS[(days + 3) % 7]} {_MONTHS[month]} {day:02d} {time_of_day} UTC {year}"


def _rest(left_out: int, what: str) -> str:
    return "".join(line + "\n" for line in _rest_line(left_out, what))


def _rest_line(left_out: int, what: str) -> list[str]:
    return [f"... and {left_out} more {what}; at most {LISTED_MAX} are listed"] if left_out > 0 else []
