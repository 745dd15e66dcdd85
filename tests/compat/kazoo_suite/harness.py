"""Takes the place of `kazoo/testing/common.py`: the same classes, but each server is a process of zraft.

Copied into an unpacked sdist of kazoo by `runner`, and imported by kazoo's own test-suite there; so it knows nothing
of this repository but two environment variables: ZRAFT_PYTHON, an interpreter, and ZRAFT_CHECKOUT, the directory it
imports zraft from. Everything else it is told as kazoo tells its own class.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 30.0
PORTS_PER_SERVER = 10
SECURE_PORT_OFFSET = 4
CERTIFICATE_DAYS = 1
RECONFIGURABLE = re.compile(rb"\bzk_feature_level\t[2-9]")


class ManagedZooKeeper:
    """One server: its place, and its process while it runs. `stop` keeps its data, `reset` and `destroy` do not."""

    def __init__(self, cluster: ZookeeperCluster, server_id: int, client_port: int) -> None:
        self.host = HOST
        self.server_id = server_id
        self.client_port = client_port
        self.secure_client_port = client_port + SECURE_PORT_OFFSET
        self.working_path = tempfile.mkdtemp(prefix=f"zraft-{server_id}-")
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def secure_address(self) -> str:
        return f"{self.host}:{self.secure_client_port}"

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def _log_path(self) -> Path:
        return Path(self.working_path, "zraft.log")

    def run(self) -> None:
        """Start it and wait until it listens, not until it serves. Nothing happens if it runs.

        kazoo's tests give a server some seconds to come back, of which starting a process may take all on a busy machine.
        """
        self.launch()
        deadline = time.monotonic() + START_S
        while self._ask(b"ruok") is None:
            assert time.monotonic() < deadline, f"server {self.server_id} does not listen after {START_S:g} s"
            time.sleep(0.05)

    def launch(self) -> None:
        """Start it. Nothing happens if it runs."""
        if self.running:
            return
        Path(self.working_path).mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ZRAFT_")}
        with self._log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(os.environ["ZRAFT_PYTHON"], "-m", "zraft", "serve", "--id", str(self.server_id)),
                    *("--data", os.path.join(self.working_path, "data"), "--address", self.address),
                    *("--cluster", self._cluster.addresses, "--key", self._cluster.key),
                    *self._cluster.settings(self),
                ],
                env=environment | self._cluster.secrets | {"PYTHONPATH": os.environ["ZRAFT_CHECKOUT"]},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.working_path,
            )
        log.info("server %d is process %d", self.server_id, self._process.pid)

    def stop(self) -> None:
        """End it and keep its data."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(
                f"server {self.server_id} did not end within {STOP_S:g} s of SIGTERM"
            ) from None
        finally:
            self._process = None
        # A process that has just been started may not have taken charge of the signal yet.
        assert code in (0, -signal.SIGTERM), f"server {self.server_id} ended with code {code}:\n" + "".join(
            self.get_logs(40)
        )

    def reset(self) -> None:
        self.stop()
        shutil.rmtree(os.path.join(self.working_path, "data"), ignore_errors=True)

    def destroy(self) -> None:
        self.stop()
        shutil.rmtree(self.working_path, ignore_errors=True)

    def get_logs(self, num_lines: int = 100) -> list[str]:
        if not self._log_path.exists():
            return []
        return self._log_path.read_text(errors="replace").splitlines(keepends=True)[-num_lines:]

    def serves(self) -> bool:
        """Whether `srvr` says which mode it is in, and the cluster is old enough to take a `reconfig`."""
        return b"Mode: " in (self._ask(b"srvr") or b"") and bool(
            RECONFIGURABLE.search(self._ask(b"mntr") or b"")
        )

    def _ask(self, word: bytes) -> bytes | None:
        """The answer to a four-letter word, None if nobody listens.

        Raises:
            AssertionError: because the process has ended by itself.
        """
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"server {self.server_id} died:\n" + "".join(self.get_logs(40)))
        try:
            with socket.create_connection((self.host, self.client_port), timeout=5) as connection:
                connection.sendall(word)
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return None
        return answer


class ZookeeperCluster:
    """Servers 1 to `size` at ports ten apart, one key, one certificate authority."""

    def __init__(
        self,
        install_path: str | None = None,
        classpath: str | None = None,
        size: int = 3,
        port_offset: int = 20000,
        observer_start_id: int = -1,
        configuration_entries: Sequence[str] = (),
        java_system_properties: Sequence[str] = (),
        jaas_config: str | None = None,
    ) -> None:
        if observer_start_id != -1:
            raise ValueError(
                f"ZOOKEEPER_OBSERVER_START_ID={observer_start_id}: zraft has no observers; leave it unset"
            )
        del install_path, classpath  # where ZooKeeper's jars are
        del configuration_entries  # of these, all that zraft has is on anyway
        self._super_digest = next(
            (p.partition("superDigest=")[2] for p in java_system_properties if "superDigest=" in p), None
        )
        self._jaas_config = jaas_config
        self._directory = tempfile.mkdtemp(prefix="zraft-cluster-")
        self.key = os.path.join(self._directory, "cluster.key")
        subprocess.run(
            [os.environ["ZRAFT_PYTHON"], "-m", "zraft", "key", "new", self.key],
            env=os.environ | {"PYTHONPATH": os.environ["ZRAFT_CHECKOUT"]},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self._certificates = _Certificates(Path(self._directory))
        self._servers = [
            ManagedZooKeeper(self, number + 1, port_offset + number * PORTS_PER_SERVER)
            for number in range(size)
        ]

    @property
    def addresses(self) -> str:
        return ",".join(f"{server.server_id}={server.address}" for server in self._servers)

    @property
    def secrets(self) -> dict[str, str]:
        """What is no argument: those can be read by everybody."""
        return {"ZRAFT_AUTH__SUPER_DIGEST": self._super_digest} if self._super_digest is not None else {}

    def settings(self, server: ManagedZooKeeper) -> list[str]:
        """What kazoo's own harness configures in ZooKeeper, as options of `zraft serve`."""
        knobs = {
            "client.read_only_mode_enabled": "true",
            "client.reconfig_enabled": "true",
            "tls.certificate": self._certificates.cert_path,
            "tls.key": self._certificates.key_path,
            "tls.client_ca": self._certificates.ca_path,
            "tls.client_auth": "need",
            "tls.address": server.secure_address,
        }
        if self._jaas_config is not None:
            users = Path(self._directory, "jaas.conf")
            users.touch(mode=0o600)
            users.write_text(self._jaas_config)
            knobs["auth.sasl_users_file"] = users
        return [option for name, value in knobs.items() for option in ("--set", f"{name}={value}")]

    def __getitem__(self, k: int) -> ManagedZooKeeper:
        return self._servers[k]

    def __iter__(self) -> Iterator[ManagedZooKeeper]:
        return iter(self._servers)

    def start(self) -> None:
        """Start all and wait until all serve."""
        for server in self:
            server.launch()
        deadline = time.monotonic() + START_S
        while not all(server.serves() for server in self):
            assert time.monotonic() < deadline, f"servers do not serve after {START_S:g} s:\n" + "".join(
                self.get_logs()
            )
            time.sleep(0.05)

    def stop(self) -> None:
        for server in self:
            server.stop()
        self._servers = []

    def terminate(self) -> None:
        for server in self:
            server.destroy()

    def reset(self) -> None:
        for server in self:
            server.reset()

    def get_logs(self) -> list[str]:
        return [line for server in self for line in server.get_logs()]

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        return self._certificates.of_client


class _Certificates:
    """A certificate authority for a day, and what it signed for the servers and the client; all PEM."""

    def __init__(self, directory: Path) -> None:
        ca_key, ca_name = _new_key(), _name("ca.zraft.test")
        ca = _sign(ca_name, ca_key, ca_name, ca_key, is_authority=True)
        server_key, client_key = _new_key(), _new_key()
        server = _sign(_name("localhost"), server_key, ca_name, ca_key, is_authority=False)
        client = _sign(_name("client"), client_key, ca_name, ca_key, is_authority=False)
        self.ca_path = directory / "ca.pem"
        self.cert_path = directory / "server.pem"
        self.key_path = directory / "server.key"
        self.ca_path.write_bytes(ca)
        self.cert_path.write_bytes(server)
        self.key_path.write_bytes(_pem(server_key))
        self.key_path.chmod(0o600)
        self.of_client = {"ca_cert": ca, "client_cert": client, "client_key": _pem(client_key)}


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _sign(
    subject: x509.Name, key: rsa.RSAPrivateKey, issuer: x509.Name, issuer_key: Any, *, is_authority: bool
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
