"""Address of a server: a host and a port, to text and back. Resolves nothing and opens nothing."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from attrs import frozen

from zraft_core.errors import ConfigError


@frozen(order=True)
class Address:
    """Host and port where a server listens, for clients' TCP and servers' UDP alike.

    `host` has no brackets.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """True if the host means every interface of the machine: one can listen on it, but not send to it."""
        return self.host in ("0.0.0.0", "::")

    @property
    def listening_hosts(self) -> tuple[str, ...]:
        """The hosts to listen on for TCP: every IPv6 address includes every IPv4 address, as in Java."""
        return ("::", "0.0.0.0") if self.host == "::" else (self.host,)

    @property
    def is_loopback(self) -> bool:
        """True if the host is known, without asking a resolver, never to leave the machine."""
        return self.host in ("localhost", "::1") or bool(_LOOPBACK_V4.fullmatch(self.host))


_LOOPBACK_V4: Final = re.compile(r"127\.\d+\.\d+\.\d+")
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_ONLY_DIGITS_AND_DOTS: Final = re.compile(r"[0-9.]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def parse_address(text: str, knob: str) -> Address:
    """Return the address in `host:port`.

    The host is a name, an IPv4 address, or an IPv6 address in brackets.

    Raises:
        ConfigError: it is none of these; names `knob`.
    """
    expected = "HOST:PORT, such as 10.0.0.1:2181, [::1]:2181 or zk1.example.org:2181"
    host, colon, port_text = text.strip().rpartition(":")
    if not colon or not host:
        raise ConfigError(f"{knob}: found {text!r}, expected {expected}")
    try:
        if host.startswith("[") and host.endswith("]"):
            # in its shortest form, so that one address is equal to itself however it was written
            ip = IPv6Address(host[1:-1])
            if ip.scope_id is not None:
                raise ConfigError(
                    f"{knob}: found {text!r}, where the zone {ip.scope_id} means something on this machine only; expected "
                    "an address by which all servers and clients reach it, such as [fd00::1]:2181"
                )
            host = str(ip)
        elif _ONLY_DIGITS_AND_DOTS.fullmatch(host):
            host = str(IPv4Address(host))
        elif ":" in host:
            raise ConfigError(
                f"{knob}: found {text!r}, expected {expected} (an IPv6 address goes in brackets)"
            )
        elif not _HOST.fullmatch(host):
            raise ConfigError(
                f"{knob}: found {text!r}, where {host!r} is not a host name; expected {expected}"
            )
    except AddressValueError as error:
        raise ConfigError(f"{knob}: found {text!r}, expected {expected} ({error})") from error
    if not _PORT.fullmatch(port_text) or not 1 <= int(port_text) <= 65_535:
        raise ConfigError(
            f"{knob}: found {text!r}, where the port is {port_text!r}; expected a port from 1 to 65535"
        )
    return Address(host, int(port_text))
