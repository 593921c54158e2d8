"""Where a name leads: to the public internet, or into this machine and its network, where a page has no business."""

import ipaddress
import socket
from collections.abc import Collection

from fanjoin.agent_proc.calls import ToolError

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def address_of(host: str, port: int, private_hosts: Collection[str]) -> str:
    """Return an address of a host, which the connection has to use: asked again, its name may lead elsewhere.

    Args:
        host: a name or an address.
        port: the port.
        private_hosts: hosts, with or without their port, that may have any address.

    Raises:
        ToolError: it has none, or one that is not public.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError("fetch_error", f"{host} is not found: {error}") from error
    addresses = [str(entry[4][0]) for entry in found]
    named = {host, f"{host}:{port}", f"[{host}]:{port}"}
    if named.isdisjoint(map(str.lower, private_hosts)) and not all(map(is_public, addresses)):
        text = f"{host} is inside of this machine or its network: {addresses[0]}. Pages are fetched from public hosts."
        flag = f"approvals.private_hosts: ['{host}:{port}']"
        notice = f"a page inside of your network was not fetched; to allow its host in config.yaml: {flag}"
        raise ToolError("not_allowed", f"{text} The user may allow it with {flag}.", notice)
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, and so is every one that it holds."""
    given = ipaddress.ip_address(address.partition("%")[0])
    return all(one.is_global and not one.is_multicast for one in [given, *_inside(given)])


def _inside(address: _Address) -> list[ipaddress.IPv4Address]:
    """Return the addresses that a gateway would make of one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in found if one is not None]
