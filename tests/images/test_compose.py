"""What compose.yaml promises: its services are configured as their commands expect. `test_containers` starts them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from onyxlog.main import main as onyxlog
from tests.images.compose import Service, read_compose
from tests.images.dockerfile import read_dockerfile
from zraft.config.knobs import load_config
from zraft_bench.main import main as zraft_bench

SERVERS = ("zraft1", "zraft2", "zraft3")


def options_are_known(command: object, words: tuple[str, ...]) -> bool:
    """Whether it takes these words; `--help` keeps it from doing what they say."""
    return CliRunner().invoke(command, [*words, "--help"]).exit_code == 0  # type: ignore[arg-type]


def test_all_services_are_of_the_image_that_the_dockerfile_makes() -> None:
    assert {(service.image, service.build) for service in read_compose().values()} == {("zraft", ".")}


def test_three_servers_of_one_cluster_start_where_nothing_else_is_asked_for() -> None:
    services = read_compose()
    assert {name for name, service in services.items() if not service.profiles} == {"key", *SERVERS}
    image = read_dockerfile()[-1].environment()
    configured = {
        name: load_config(flags={}, environ=image | dict(services[name].environment)) for name in SERVERS
    }
    assert [config.id for config in configured.values()] == [1, 2, 3]
    for config in configured.values():
        assert {server: str(address) for server, address in config.cluster.items()} == {
            1: "zraft1:2181",
            2: "zraft2:2181",
            3: "zraft3:2181",
        }
        assert str(config.admin) == "0.0.0.0:8080"


def test_servers_are_reached_from_this_machine_only() -> None:
    services = read_compose()
    published = {name: services[name].ports for name in SERVERS}
    assert published == {
        "zraft1": ("127.0.0.1:2181:2181", "127.0.0.1:8081:8080"),
        "zraft2": ("127.0.0.1:2182:2181", "127.0.0.1:8082:8080"),
        "zraft3": ("127.0.0.1:2183:2181", "127.0.0.1:8083:8080"),
    }
    assert not [name for name, service in services.items() if service.ports and name not in SERVERS]


def test_each_server_has_a_disk_of_its_own_and_nobody_but_the_keys_maker_writes_the_key() -> None:
    services = read_compose()
    disks = [v.name for name in SERVERS for v in services[name].volumes if v.target == "/data"]
    assert len(set(disks)) == len(SERVERS)
    writers = {
        name
        for name, service in services.items()
        for v in service.volumes
        if v.name == "keys" and not v.read_only
    }
    assert writers == {"key"}
    for name in SERVERS:
        assert services[name].waits_for == {"key": "service_completed_successfully"}


def test_every_volume_is_put_where_the_image_has_a_directory_that_its_user_owns() -> None:
    """A new volume gets the owner of the directory that it is put over; without one it is root's, and nobody can write."""
    (made,) = [step.text for step in read_dockerfile()[-1].steps if step.name == "RUN"]
    owned = re.search(r"chown 10001:10001((?: /\w+)+)", made)
    assert owned is not None
    targets = {volume.target for service in read_compose().values() for volume in service.volumes}
    assert targets <= set(owned[1].split())


def test_a_fleet_of_peers_and_a_command_for_it_reach_the_servers() -> None:
    services = read_compose()
    peer, command = services["peer"], services["onyxlog"]
    assert peer.profiles == ("peers",)
    assert peer.replicas > 1
    for service in (peer, command):
        assert service.environment == {"ONYXLOG_CONNECT": ",".join(f"{name}:2181" for name in SERVERS)}
        assert service.waits_for == dict.fromkeys(SERVERS, "service_healthy")
        assert service.working_dir == "/jobs"
        assert "jobs" in {volume.name for volume in service.volumes}
    assert peer.command is not None
    assert options_are_known(onyxlog, ("peer", *peer.command))
    assert command.entrypoint == ("onyxlog",)
    assert command.command is not None
    assert options_are_known(onyxlog, command.command)


def test_the_bench_takes_its_options_and_waits_for_servers_that_serve() -> None:
    bench = read_compose()["bench"]
    assert bench.profiles == ("bench",)
    assert bench.entrypoint == ("zraft-bench",)
    assert bench.command is not None
    assert options_are_known(zraft_bench, bench.command)
    assert bench.waits_for == dict.fromkeys(SERVERS, "service_healthy")


def test_a_service_has_a_health_check_exactly_if_it_stays() -> None:
    def stays(service: Service) -> bool:
        return service.name in SERVERS or service.name == "peer"

    for service in read_compose().values():
        assert (service.health != ()) == stays(service), service.name


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("    privileged: true", "does not know what {'privileged'} does"),
        ("    command: serve --id 1", "signals do not arrive"),
        ('    environment: {ZRAFT_ID: "${ID}"}', "knows no variables"),
        ("    environment: {ZRAFT_ID: 1}", "put it in quotes"),
        ('    volumes: ["data9:/data"]', "used and not declared"),
    ],
)
def test_what_the_reader_does_not_know_is_an_error(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(f"services:\n  one:\n    image: zraft\n    build: .\n{line}\nvolumes: {{}}\n")
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        read_compose(path)
