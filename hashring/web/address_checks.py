"""Checks of the addresses that the service is started with: the dashboard's, and a base path."""

from __future__ import annotations

from urllib.parse import urlsplit

from hashring.errors import ConfigError


def check_grafana(address: str) -> None:
    """Refuse what cannot be the address of a dashboard.

    Raises:
        ConfigError: it is not empty, and no address of the web.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        known = False
    else:
        known = parts.scheme in ("http", "https") and bool(parts.netloc)
    if address and not known:
        raise ConfigError("grafana", address, "give the dashboard's address: https://…/d/hashring")


def check_base_path(path: str) -> None:
    """Refuse what cannot be a base path.

    Raises:
        ConfigError: it is not empty and does not look like ``/one/two``.
    """
    parts = path.split("/")
    plain = all(part and part.replace("-", "").replace("_", "").isalnum() for part in parts[1:])
    if path and not (parts[0] == "" and plain and path.isascii()):
        raise ConfigError(
            "base_path", path, "begins with a slash, ends without one, and has plain words between"
        )
