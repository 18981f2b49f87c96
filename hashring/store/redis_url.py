"""A Redis URL: the client for it, and the URL as it may be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hashring.errors import ConfigError

_ESCAPES: Final = (
    "it cannot be read; write /, ?, #, [ and ] in a password as %2F, %3F, %23, %5B and %5D"
)

# Before the last @: a scheme, a user, and behind the first colon the password.
_LOGIN: Final = re.compile(r"(\s*[a-z][a-z0-9+.-]*://+)?([^:]*)(:.*)?", re.IGNORECASE | re.DOTALL)
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_PARAMETER: Final = re.compile(r"([?&][^?&=]*pass[^?&=]*=)[^&]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """The URL as it may be shown. It need not be a URL that can be read."""
    before, at, host = url.rpartition("@")
    if _PARAMETER.search(before):
        # The @ may be in that password, and then its end would stand where the host does.
        return _PARAMETER.sub(r"\1***", _without_login(before) + at + "***")
    return _PARAMETER.sub(r"\1***", _without_login(before) + at + host)


def _without_login(text: str) -> str:
    match = _LOGIN.fullmatch(text)
    assert match is not None
    return f"{match[1] or ''}{match[2]}{':***' if match[3] else ''}"


def check_url(url: str) -> None:
    """Check a URL for another machine: the files for TLS that it names are not looked for.

    Raises:
        ConfigError: as :func:`client_of`.
    """
    _client(url, lambda _: None)


def client_of(url: str) -> Any:
    """A client for that URL; it has not connected yet.

    Raises:
        ConfigError: the URL cannot be. No part of a password is in the error.
    """
    return _client(url, _check_files)


def _client(url: str, check_files: Callable[[Mapping[str, Any]], None]) -> Any:
    import redis  # noqa: PLC0415 - a tenth of a second that `--help` need not wait for

    try:
        _check_parts(url)
        client = redis.Redis.from_url(url)
        database = urlsplit(url).path.strip("/")
        if database and not url.startswith("unix:") and not database.isdecimal():
            # redis-py would take database 0.
            raise ValueError(f"{database!r} is no number of a database")
        # A parameter in the URL that the client does not know shows only here.
        settings = client.connection_pool.connection_kwargs
        client.connection_pool.connection_class(**settings)
        _check_tls_version(settings)
        check_files(settings)
    except (ValueError, TypeError, redis.RedisError) as error:
        # Behind a ? in a password its rest stands where parameters do, and the error may name it.
        reason = _ESCAPES if "@" in url.partition("?")[2] else str(error)
        raise ConfigError(
            "url",
            without_password(url),
            f"{reason}; give redis://user:password@host:port/db, rediss://… or unix:///path",
        ) from None
    return client


def _check_tls_version(settings: Mapping[str, Any]) -> None:
    """Refuse a version of TLS that there is not: each attempt to connect would fail for it.

    Raises:
        ValueError: there is none.
    """
    name = "ssl_min_version"
    version = settings.get(name)
    if version is None:
        return
    import ssl  # noqa: PLC0415 - few URLs need it

    if version not in list(ssl.TLSVersion):
        known = f"{ssl.TLSVersion.TLSv1_2:d} for TLS 1.2 or {ssl.TLSVersion.TLSv1_3:d} for TLS 1.3"
        raise ValueError(f"{name}: {version} is no version of TLS: give {known}")


def _check_files(settings: Mapping[str, Any]) -> None:
    """Refuse a file for TLS that is not there: the client's error would not name it.

    Raises:
        ValueError: it cannot be read.
    """
    for name in _FILES:
        file = settings.get(name)
        try:
            if file:
                Path(file).open("rb").close()
        except OSError as error:
            raise ValueError(f"{name}: {file}: {error.strerror}") from None


def _check_parts(url: str) -> None:
    """Refuse a URL that a password cuts in two.

    Raises:
        ValueError: it cannot be read; no part of the password is in the error.
    """
    try:
        parts = urlsplit(url)
        # No name of a parameter has an @.
        cut = "@" in parts.fragment or any(
            "@" in parameter.partition("=")[0] for parameter in parts.query.split("&")
        )
        host = parts.netloc.rpartition("@")[2]
        if not url.startswith("unix:"):
            cut = cut or "@" in parts.path
            _ = parts.port
        elif host and "@" not in url:
            # redis-py would drop the first part of the path.
            raise ValueError("the path of a socket begins with /")
        else:
            cut = cut or bool(host)
    except ValueError as error:
        raise ValueError(_ESCAPES if "@" in url else str(error)) from None
    if cut:
        raise ValueError(_ESCAPES)
