"""Names and paths of a tenancy."""

from __future__ import annotations

import pytest

from onyxlog.errors import EntryError, ParametersError
from onyxlog.peer.log.layout import LogLayout, decode_parameters, encode_parameters, parents
from onyxlog.replica.replica import JoinMode, Parameters
from zraft_core.errors import ConfigError


def test_paths_are_those_of_the_documents() -> None:
    layout = LogLayout("t")
    assert layout.entry(17) == "/onyx/t/log/entry-0000000017"
    assert layout.position("/onyx/t/log/entry-0000000017") == 17
    assert layout.origin == "/onyx/t/origin/origin"
    assert layout.pulse("g") == "/onyx/t/pulse/g"
    assert layout.job("j") == "/onyx/t/jobs/j"
    assert layout.state("digests/g") == "/onyx/t/state/digests/g"
    assert layout.parameters == "/onyx/t/parameters"
    assert layout.directories[:3] == ("/onyx", "/onyx/t", "/onyx/t/log")
    assert parents("/a/b/c") == ["/a", "/a/b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x00", "x" * 201])
def test_names_that_no_znode_can_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="tenancy: found"):
        LogLayout(name)
    for wrong in (LogLayout("t").pulse, LogLayout("t").job):
        with pytest.raises(ConfigError):
            wrong(name)
    if name not in ("", "a/b"):
        with pytest.raises(ConfigError, match="state"):
            LogLayout("t").state(f"a/{name}")


def test_parameters_are_json_and_come_back() -> None:
    parameters = Parameters(join=JoinMode.RING)
    assert decode_parameters(encode_parameters(parameters), "x") == parameters
    assert encode_parameters(parameters).startswith(b'{"job_scheduler": "balanced", "join": "ring"')


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\xff", EntryError),
        (b"[]", ParametersError),
        (b'{"join": "ring"}', ParametersError),
        (encode_parameters(Parameters()).replace(b"balanced", b"fair"), ParametersError),
    ],
)
def test_parameters_of_another_version_are_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match="/parameters: "):
        decode_parameters(data, "/parameters")
