"""Which requests are answered: the host names they ask for, and the proxies that are believed."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from werkzeug.middleware.proxy_fix import ProxyFix

from hashring.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HEADERS: Final = {
    # No script, style or picture but this service's own, and none in a page's text: a name that
    # is HTML stays text even if escaping it were forgotten.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer carries."""

# RFC 9110, 7.2: a host and an optional port. No user, no list, nothing behind the port.
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE)
_NAME: Final = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)

_WITH_PORT: Final = re.compile(r"(?:\[([^\]]+)\]|([0-9.]+))(?::[0-9]*)?")


class Hosts:
    """The host names that requests may ask for.

    A page of another site whose name is made to point at this machine (DNS rebinding) asks for
    its own name, which is not among them. An IP address cannot be rebound.

    Args:
        allowed: names besides ``localhost`` and this machine's; ``*`` for any.

    Raises:
        ConfigError: one can be no name of a host.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self._names = {"localhost", socket.gethostname().lower()}
        self._names.update(_allowed_name(text) for text in allowed)

    def allows(self, host: str) -> bool:
        """Whether a request with this Host header may be answered."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found[1] or found[2]).lower().rstrip(".")
        if found[1] is None and (
            "*" in self._names or name in self._names or name.endswith(".localhost")
        ):
            return True
        return _address(name) is not None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, an IPv4 one also where it is written as one of IPv6; ``None`` for other text."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _allowed_name(text: str) -> str:
    if not (text == "*" or _NAME.fullmatch(text) or _address(text)):
        raise ConfigError(
            "allowed_host",
            text,
            "give a name of ASCII letters, digits, '.', '-' and '_', without a scheme, port or "
            "path, such as ring.example; or * for any",
        )
    return text.lower().rstrip(".")


class TrustedProxies:
    """Takes a visitor's address, scheme and name from a proxy, and from nobody else.

    A request that comes from a trusted address has its last ``X-Forwarded-For``,
    ``X-Forwarded-Proto`` and ``X-Forwarded-User`` believed. If the last ``X-Forwarded-For`` is no
    address, the proxy's own counts. From any other address these headers are removed.

    Args:
        app: what answers.
        trusted: addresses and networks, such as ``10.0.0.0/8``.

    Raises:
        ConfigError: one is neither.
    """

    def __init__(self, app: WSGIApplication, trusted: Iterable[str]) -> None:
        self._app = app
        self._behind = ProxyFix(self._with_address, x_for=1, x_proto=1, x_host=0)
        self._networks = [_network(text) for text in trusted]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if self._trusts(environ.get("REMOTE_ADDR", "")):
            return self._behind(environ, start_response)
        for name in [name for name in environ if name.startswith("HTTP_X_FORWARDED_")]:
            del environ[name]
        return self._app(environ, start_response)

    def _with_address(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        proxy = environ["werkzeug.proxy_fix.orig"]["REMOTE_ADDR"]
        environ["REMOTE_ADDR"] = _without_port(environ["REMOTE_ADDR"]) or proxy
        return self._app(environ, start_response)

    def _trusts(self, address: Any) -> bool:
        found = _address(str(address))
        return found is not None and any(found in network for network in self._networks)


def _without_port(text: str) -> str:
    """The address that a proxy gives, in its usual form; empty if it is none.

    Some proxies add the port of the visitor's connection: each connection would be a new visitor.
    """
    found = _WITH_PORT.fullmatch(text)
    address = _address((found[1] or found[2]) if found else text)
    return "" if address is None else str(address).partition("%")[0]


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ConfigError(
            "trusted_proxy", text, "give an IP address or a network, such as 10.0.0.0/8"
        ) from None
