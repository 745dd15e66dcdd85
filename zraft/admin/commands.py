"""AdminServer's commands: from a name to the JSON object that ZooKeeper's AdminServer answers. Pure.

Field names are ZooKeeper's; `command` and `error` are in every answer. A bounded list says in `left_out` how
much it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from zraft.monitoring.monitor import monitor_values
from zraft.monitoring.statistics import ConnectionStatistics, LeaderStatistics, ServerStatistics
from zraft.server.operators.status import AdminReports

Answer = dict[str, Any]
Parameters = Mapping[str, str]

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"
DIGEST_VERSION: Final = 2
"""The version of ZooKeeper's digests; ours are of another kind, and compared with our own only."""


def run_command(name: str, reports: AdminReports, parameters: Parameters) -> Answer:
    """Return the answer to `/commands/<name>`, also for unknown names."""
    command = _BY_NAME.get(name)
    if command is None:
        return {"command": name, "error": f"Unknown command: {name}"}
    primary, needs_serving, run = command
    answer: Answer = {}
    if needs_serving and not reports.serving:
        answer["error"] = NOT_SERVING
    else:
        answer |= run(reports, parameters)
    answer["command"] = primary
    answer.setdefault("error", None)
    return answer


# -- the answers of each command


def _nothing(_: AdminReports, __: Parameters) -> Answer:
    return {}


def _configuration(reports: AdminReports, _: Parameters) -> Answer:
    c = reports.configuration()
    return {
        "client_port": c.client_port,
        "data_dir": c.data,
        "data_log_dir": c.data,
        "tick_time": c.tick_time_ms,
        "max_client_cnxns": c.connections_per_address_max,
        "min_session_timeout": c.session_timeout_ms_min,
        "max_session_timeout": c.session_timeout_ms_max,
        "server_id": c.server,
        "client_port_listen_backlog": c.listen_backlog,
    }


def _connections(reports: AdminReports, _: Parameters) -> Answer:
    found = reports.connections()
    answer: Answer = {
        name: [_connection(one, brief=False) for one in found.items if one.secure is secure]
        for name, secure in (("connections", False), ("secure_connections", True))
    }
    return answer | _left_out(found.left_out)


def _connection(one: ConnectionStatistics, *, brief: bool) -> Answer:
    answer: Answer = {
        "remote_socket_address": one.address,
        "interest_ops": int(one.reading),
        "outstanding_requests": one.queued,
        "packets_received": one.received,
        "packets_sent": one.sent,
    }
    of = one.session
    if not brief and of is not None:
        answer |= {
            "session_id": of.session,
            "last_operation": of.last_operation,
            "established": of.established_ms,
            "session_timeout": of.timeout_ms,
            "last_cxid": of.last_cxid,
            "last_zxid": of.last_zxid,
            "last_response_time": of.last_response_ms,
            "last_latency": of.last_latency_ms,
            "min_latency": of.min_latency_ms,
            "avg_latency": of.avg_latency_ms,
            "max_latency": of.max_latency_ms,
        }
    return answer


def _reset_connections(reports: AdminReports, _: Parameters) -> Answer:
    reports.reset_connections()
    return {}


def _reset_server(reports: AdminReports, _: Parameters) -> Answer:
    reports.reset_server()
    return {}


def _hash(reports: AdminReports, _: Parameters) -> Answer:
    found = reports.digest()
    if found is None:
        return {"digests": []}
    return {"digests": [{"zxid": found[0], "digest_version": DIGEST_VERSION, "digest": found[1]}]}


def _dirs(reports: AdminReports, _: Parameters) -> Answer:
    c = reports.configuration()
    return {"datadir_size": c.data_size, "logdir_size": c.log_size}


def _dump(reports: AdminReports, _: Parameters) -> Answer:
    dump = reports.dump()
    by_time = () if dump.expiries is None else dump.expiries.by_time
    listed = sum(len(paths) for _, paths in dump.ephemerals.items)
    expiring = 0 if dump.expiries is None else dump.expiries.total - sum(len(ids) for _, ids in by_time)
    return {
        "expiry_time_to_session_ids": {str(at): list(sessions) for at, sessions in by_time},
        "session_id_to_ephemeral_paths": {
            str(session): list(paths) for session, paths in dump.ephemerals.items
        },
    } | _left_out(expiring + dump.ephemerals.total - listed)


def _environment(reports: AdminReports, _: Parameters) -> Answer:
    return dict(reports.environment())


def _get_trace_mask(reports: AdminReports, _: Parameters) -> Answer:
    return {"tracemask": reports.trace_mask()}


def _set_trace_mask(reports: AdminReports, parameters: Parameters) -> Answer:
    wanted = "setTraceMask requires long traceMask argument"
    text = parameters.get("traceMask")
    if text is None:
        return {"error": wanted}
    try:
        mask = int(text)
    except ValueError:
        mask = 1 << 63
    if not -(1 << 63) <= mask < 1 << 63:
        return {"error": f"{wanted}, got {text}"}
    reports.set_trace_mask(mask)
    return {"tracemask": mask}


def _initial_configuration(reports: AdminReports, _: Parameters) -> Answer:
    return {"initial_configuration": reports.cluster_text()}


def _is_read_only(reports: AdminReports, _: Parameters) -> Answer:
    return {"read_only": reports.read_only}


def _last_snapshot(reports: AdminReports, _: Parameters) -> Answer:
    """Return seconds, and -1 for both before the first snapshot, as ZooKeeper does."""
    newest = reports.status().snapshot
    if newest is None:
        return {"zxid": "ffffffffffffffff", "timestamp": -1}
    return {"zxid": f"{newest.zxid:x}", "timestamp": newest.taken_ms // 1000}


def _leader(reports: AdminReports, _: Parameters) -> Answer:
    status = reports.status()
    if len(status.members) == 1 or status.raft is None:
        return {"error": "server is not initialized"}
    leaders = [m for m in status.members if m.leads]
    return {
        "is_leader": bool(leaders) and leaders[0].is_me,
        "leader_id": leaders[0].server if leaders else -1,
        "leader_ip": _host(leaders[0].address) if leaders else "",
    }


def _monitor(reports: AdminReports, _: Parameters) -> Answer:
    statistics = reports.server()
    return {"error": NOT_SERVING} if statistics is None else dict(monitor_values(statistics))


def _observers(reports: AdminReports, _: Parameters) -> Answer:
    """Return the observers. Only the leader knows how many are in sync, as in ZooKeeper."""
    statistics = reports.server()
    leader = None if statistics is None else statistics.leader
    return {
        "synced_observers": 0 if leader is None else leader.synced_observers,
        "observers": [
            {"sid": member.server, "address": member.address}
            for member in reports.status().members
            if member.part == "observer"
        ],
    }


def _server_stats(reports: AdminReports, _: Parameters) -> Answer:
    statistics = reports.server()
    if statistics is None:
        return {"error": NOT_SERVING}
    c = reports.configuration()
    answer: Answer = {
        "version": statistics.version,
        "read_only": reports.read_only,
        "server_stats": _numbers(statistics, c.data_size, c.log_size),
    }
    if statistics.leader is not None:
        answer["proposal_stats"] = _proposals(statistics.leader)
    answer["node_count"] = statistics.node_count
    return answer


def _numbers(statistics: ServerStatistics, data_size: int, log_size: int) -> Answer:
    return {
        "packets_sent": statistics.sent,
        "packets_received": statistics.received,
        "data_dir_size": data_size,
        "log_dir_size": log_size,
        "server_state": statistics.mode.value,
        "last_processed_zxid": statistics.zxid,
        "outstanding_requests": statistics.outstanding,
        "avg_latency": statistics.average_latency_ms,
        "max_latency": statistics.latency_max_ms,
        "min_latency": statistics.latency_min_ms,
        "num_alive_client_connections": statistics.connection_count,
        "uptime": statistics.uptime_ms,
        "provider_null": False,
    }


def _proposals(leader: LeaderStatistics) -> Answer:
    return {
        "last_buffer_size": leader.last_proposal_size,
        "min_buffer_size": leader.min_proposal_size,
        "max_buffer_size": leader.max_proposal_size,
    }


def _stats(reports: AdminReports, parameters: Parameters) -> Answer:
    found = reports.connections()
    return (
        _server_stats(reports, parameters)
        | {
            name: [_connection(one, brief=True) for one in found.items if one.secure is secure]
            for name, secure in (("connections", False), ("secure_connections", True))
        }
        | _left_out(found.left_out)
    )


def _system_properties(reports: AdminReports, _: Parameters) -> Answer:
    return {f"zraft.{knob}": value for knob, value in sorted(reports.knobs())}


def _voting_view(reports: AdminReports, _: Parameters) -> Answer:
    members = reports.configuration().members
    if len(members) == 1:
        return {"current_config": {}}
    # A server has one port, for clients and servers, and none for elections.
    return {
        "current_config": {
            str(m.server): {
                "server_addresses": [m.address],
                "election_addresses": [],
                "client_address": m.address,
                "learner_type": "participant",
            }
            for m in members
            if not m.observer
        }
    }


def _watches(reports: AdminReports, _: Parameters) -> Answer:
    found = reports.watches_by_session()
    listed = sum(len(paths) for _, paths in found.items)
    return {
        "session_id_to_watched_paths": {str(session): list(paths) for session, paths in found.items}
    } | _left_out(found.total - listed)


def _watches_by_path(reports: AdminReports, _: Parameters) -> Answer:
    found = reports.watches_by_path()
    listed = sum(len(sessions) for _, sessions in found.items)
    return {"path_to_session_ids": {path: list(sessions) for path, sessions in found.items}} | _left_out(
        found.total - listed
    )


def _watch_summary(reports: AdminReports, _: Parameters) -> Answer:
    summary = reports.watch_summary()
    return {
        "num_connections": summary.connections,
        "num_paths": summary.paths,
        "num_total_watches": summary.watches,
    }


def _zabstate(reports: AdminReports, _: Parameters) -> Answer:
    status = reports.status()
    if len(status.members) == 1 or status.raft is None:
        return {"voting": False, "zabstate": ""}
    return {
        "voting": any(member.is_me and member.part == "voter" for member in status.members),
        "zabstate": "broadcast" if status.raft.leader is not None else "election",
        "myid": status.server,
        "is_leader": status.raft.role == "leader",
        "last_zxid": f"{0 if status.statistics is None else status.statistics.zxid:#x}",
    }


def _left_out(count: int) -> Answer:
    return {"left_out": count} if count > 0 else {}


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


Run = Callable[[AdminReports, Parameters], Answer]

_COMMANDS: Final[tuple[tuple[tuple[str, ...], bool, Run], ...]] = (
    # names, the primary one first; whether the server must serve its clients; what answers
    (("configuration", "conf", "config"), True, _configuration),
    (("connection_stat_reset", "crst"), True, _reset_connections),
    (("connections", "cons"), True, _connections),
    (("dirs",), True, _dirs),
    (("dump",), True, _dump),
    (("environment", "env", "envi"), False, _environment),
    (("get_trace_mask", "gtmk"), False, _get_trace_mask),
    (("hash",), True, _hash),
    (("initial_configuration", "icfg"), True, _initial_configuration),
    (("is_read_only", "isro"), True, _is_read_only),
    (("last_snapshot", "lsnp"), True, _last_snapshot),
    (("leader", "lead"), True, _leader),
    (("monitor", "mntr"), False, _monitor),
    (("observer_connection_stat_reset", "orst"), True, _nothing),
    (("observers", "obsr"), True, _observers),
    (("ruok",), True, _nothing),
    (("server_stats", "srvr"), True, _server_stats),
    (("set_trace_mask", "stmk"), False, _set_trace_mask),
    (("stat_reset", "srst"), True, _reset_server),
    (("stats", "stat"), True, _stats),
    (("system_properties", "sysp"), False, _system_properties),
    (("voting_view",), True, _voting_view),
    (("watch_summary", "wchs"), True, _watch_summary),
    (("watches", "wchc"), True, _watches),
    (("watches_by_path", "wchp"), True, _watches_by_path),
    (("zabstate",), False, _zabstate),
)

_BY_NAME: Final = {name: (names[0], needs, run) for names, needs, run in _COMMANDS for name in names}

_CHANGING: Final = frozenset({"connection_stat_reset", "set_trace_mask", "stat_reset"})


def changes_something(name: str) -> bool:
    """Return whether a command changes something beside giving an answer."""
    return name in _BY_NAME and _BY_NAME[name][0] in _CHANGING


COMMAND_NAMES: Final = tuple(sorted(names[0] for names, _, _ in _COMMANDS))
"""Primary names, in alphabetical order."""
