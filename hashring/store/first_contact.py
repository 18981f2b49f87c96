"""What else to do about a server that never answered: TLS may be the cause.

Neither end says so: a server without TLS takes a handshake for half a command, and waits for the
rest; one with TLS takes a command for a broken handshake, and hangs up.
"""

from __future__ import annotations

from typing import Any

from hashring.errors import RedisRefused, RedisUnavailable, StoreError
from hashring.store.client_errors import translate
from hashring.store.client_kind import is_cluster
from hashring.store.error_remedies import ENDED, TLS_FILES


class FirstContact:
    """Whether a server has answered a client yet, and the errors until then.

    Args:
        client: of redis-py or valkey-py.
        answered: whether the server has answered an earlier client of the same settings.

    Attributes:
        answered: whether it has answered; the client then speaks TLS as the server does.
    """

    def __init__(self, client: Any, *, answered: bool = False) -> None:
        self._client = client
        self.answered = answered

    def failure(self, error: Exception, doing: str) -> StoreError:
        """This package's error for a client's; see :func:`translate`."""
        failure = translate(error, doing)
        if isinstance(failure, RedisRefused):
            self.answered = True
        elif isinstance(failure, RedisUnavailable) and not self.answered:
            remedy = _remedy(self._client, str(error))
            if remedy:
                return RedisUnavailable(f"{failure}; {remedy}")
        return failure


def _remedy(client: Any, failure: str) -> str:
    """What to do, if TLS may be the cause; else empty.

    Args:
        failure: what the client says.
    """
    if is_cluster(client):
        settings = getattr(client.nodes_manager, "connection_kwargs", None)
        settings = settings or client.connection_kwargs
        kind = settings.get("connection_class")
    else:
        settings = client.connection_pool.connection_kwargs
        kind = client.connection_pool.connection_class
    if "path" in settings:
        return ""  # a unix socket
    ended = any(each in failure for each in ENDED)
    if not settings.get("ssl") and "SSL" not in getattr(kind, "__name__", ""):
        return "if the port is one with TLS, give rediss:// in the URL" if ended else ""
    if any(each in failure for each in ("CERTIFICATE", "ALERT", *TLS_FILES)):
        return ""
    unmet = " connecting to " in failure and (ended or "[SSL" in failure)
    if unmet or failure.startswith("Timeout connecting"):
        return "if the port is one without TLS, give redis:// in the URL"
    # The handshake is over for the client by then.
    return "if the server asks for a certificate, name ssl_certfile and ssl_keyfile" * ended
