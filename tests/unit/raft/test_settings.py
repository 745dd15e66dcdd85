"""Settings that contradict each other are refused with the knob's name."""

from __future__ import annotations

import pytest
from attrs import evolve, fields

from tests.unit.raft.network import make_raft
from zraft.raft.settings import RaftSettings
from zraft_core.errors import ConfigError


def test_defaults_are_valid() -> None:
    RaftSettings().validate()


@pytest.mark.parametrize("name", [field.name for field in fields(RaftSettings)])
def test_every_setting_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"raft.{name} is 0"):
        evolve(RaftSettings(), **{name: 0}).validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (RaftSettings(election_timeout_ticks=149), "raft.election_timeout_ticks is 149"),
        (RaftSettings(inflight_bytes_max=1000), "raft.inflight_bytes_max is 1000"),
        (RaftSettings(bulk_resend_ticks=10), "raft.bulk_resend_ticks is 10"),
        (RaftSettings(put_off_ticks_max=2), "raft.put_off_ticks_max is 2"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: RaftSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.validate()
    with pytest.raises(ConfigError, match=message):
        make_raft(1, settings=settings)
