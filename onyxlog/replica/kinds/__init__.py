"""One module per kind of entry, and the table of them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onyxlog.replica import commands
from onyxlog.replica.kind import AnyKind
from onyxlog.replica.kinds import (
    abort_join,
    accept_join,
    add_virtual_peer,
    backpressure_off,
    backpressure_on,
    complete_job,
    exhaust_input,
    gc,
    group_leave,
    join_direct,
    kill_job,
    leave,
    notify_join,
    prepare_join,
    seal_output,
    signal_ready,
    submit_job,
)

KINDS: Final[Mapping[type[Any], AnyKind]] = {
    commands.PrepareJoin: prepare_join.KIND,
    commands.NotifyJoin: notify_join.KIND,
    commands.AcceptJoin: accept_join.KIND,
    commands.AbortJoin: abort_join.KIND,
    commands.JoinDirect: join_direct.KIND,
    commands.GroupLeave: group_leave.KIND,
    commands.AddVirtualPeer: add_virtual_peer.KIND,
    commands.Leave: leave.KIND,
    commands.SubmitJob: submit_job.KIND,
    commands.KillJob: kill_job.KIND,
    commands.CompleteJob: complete_job.KIND,
    commands.ExhaustInput: exhaust_input.KIND,
    commands.SealOutput: seal_output.KIND,
    commands.SignalReady: signal_ready.KIND,
    commands.BackpressureOn: backpressure_on.KIND,
    commands.BackpressureOff: backpressure_off.KIND,
    commands.Gc: gc.KIND,
}
