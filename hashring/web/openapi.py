"""What the API is, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from hashring._version import __version__

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 512}
_MAYBE_TEXT: Final = {"type": ["string", "null"]}
_NUMBER: Final = {"type": "number"}
_MAYBE_NUMBER: Final = {"type": ["number", "null"]}
_COUNT: Final = {"type": "integer", "minimum": 0}
_MAYBE_COUNT: Final = {"type": ["integer", "null"], "minimum": 0}
_TIME: Final = {"type": "string", "format": "date-time"}
_POINT: Final = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_SHARES: Final = {"type": "object", "additionalProperties": _NUMBER}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(error={**_TEXT, "description": "What was wrong, and what to do."}),
    "Failure": {
        **_object(since=_NUMBER, error=_TEXT),
        "description": "Why there is nothing newer: since when (this machine's time, seconds "
        "since 1970) Redis has not answered, and what it or its client said.",
    },
    "Balance": _object(
        peak_to_mean=_NUMBER,
        cv=_NUMBER,
        expected_peak_to_mean=_NUMBER,
        expected_cv=_NUMBER,
    ),
    "Ring": _object(
        ring=_TEXT,
        at=_TIME,
        epoch=_COUNT,
        fingerprint=_TEXT,
        hash_algorithms=_list(_TEXT),
        nodes=_COUNT,
        replicas=_COUNT,
        expired=_list(_TEXT),
        agreeing=_COUNT,
        duplicate_points=_list(_object(point=_POINT, nodes=_list(_TEXT))),
        garbage=_COUNT,
        held=_MAYBE_COUNT,
        limit=_MAYBE_COUNT,
        unserved=_COUNT,
        balance=_or_null(_ref("Balance")),
        failure=_or_null(_ref("Failure")),
    ),
    "RingInList": {"anyOf": [_ref("Ring"), _object(ring=_TEXT, failure=_or_null(_ref("Failure")))]},
    "Node": _object(
        name=_TEXT,
        host=_TEXT,
        pid=_TEXT,
        state={"enum": ["up", "late", "full", "expired"]},
        replicas=_COUNT,
        share=_NUMBER,
        fair_share=_NUMBER,
        delay=_NUMBER,
        expires_in=_NUMBER,
        expired={"type": "boolean"},
        heartbeat_at=_TIME,
        expires_at=_TIME,
        ttl=_MAYBE_NUMBER,
        weight=_MAYBE_NUMBER,
        started=_MAYBE_NUMBER,
        version=_MAYBE_TEXT,
        hash_algorithm=_MAYBE_TEXT,
        held=_MAYBE_COUNT,
        limit=_MAYBE_COUNT,
        unserved=_COUNT,
        fingerprint=_MAYBE_TEXT,
        sees={"enum": ["current", "older", "another", "-"]},
    ),
    "Nodes": _object(ring=_TEXT, nodes=_list(_ref("Node")), failure=_or_null(_ref("Failure"))),
    "Lock": _object(node=_TEXT, token=_TEXT, expires_in=_NUMBER, waiter=_MAYBE_TEXT),
    "Owner": _object(
        ring=_TEXT,
        key=_TEXT,
        point=_POINT,
        owner=_MAYBE_TEXT,
        next=_list(_TEXT),
        hash_algorithm=_TEXT,
        epoch=_COUNT,
        lock=_or_null(_ref("Lock")),
        lock_error=_MAYBE_TEXT,
        failure=_or_null(_ref("Failure")),
    ),
    "Owners": _object(
        ring=_TEXT,
        epoch=_COUNT,
        hash_algorithm=_TEXT,
        owners=_list(_MAYBE_TEXT),
        failure=_or_null(_ref("Failure")),
    ),
    "Change": _object(
        id=_TEXT,
        at=_TIME,
        kind=_TEXT,
        by=_TEXT,
        nodes=_list(_TEXT),
        points=_list(_POINT),
        reason=_TEXT,
        epoch=_MAYBE_COUNT,
        keys=_MAYBE_TEXT,
    ),
    "Changes": _object(
        ring=_TEXT, changes=_list(_ref("Change")), failure=_or_null(_ref("Failure"))
    ),
    "Plan": _object(
        ring=_TEXT,
        epoch=_COUNT,
        moved=_NUMBER,
        flows=_list(
            {
                "type": "object",
                "required": ["from", "to", "part"],
                "properties": {"from": _MAYBE_TEXT, "to": _MAYBE_TEXT, "part": _NUMBER},
            }
        ),
        before=_SHARES,
        after=_SHARES,
        failure=_or_null(_ref("Failure")),
    ),
    "GroupInList": _object(
        group=_TEXT,
        phase=_MAYBE_TEXT,
        generation=_MAYBE_COUNT,
        partitions=_MAYBE_COUNT,
        members=_MAYBE_COUNT,
        failure=_or_null(_ref("Failure")),
    ),
    "Group": _object(
        group=_TEXT,
        at=_TIME,
        phase={"enum": ["Ready", "Holddown", "Rebalancing"]},
        generation=_COUNT,
        partitions=_COUNT,
        until=_MAYBE_NUMBER,
        latest=_MAYBE_NUMBER,
        waits=_list(
            _object(kind=_TEXT, member=_MAYBE_TEXT, partition=_MAYBE_COUNT, until=_MAYBE_NUMBER)
        ),
        unowned=_list(_COUNT),
        draining=_list(_COUNT),
        members=_list(
            _object(name=_TEXT, state=_TEXT, partitions=_list(_COUNT), expires_in=_NUMBER)
        ),
        blocking=_list(_TEXT),
        terms={"type": "object"},
        owners=_list(_MAYBE_TEXT),
        failure=_or_null(_ref("Failure")),
    ),
    "GroupPlan": _object(
        group=_TEXT,
        moves=_list(
            _object(
                partition=_COUNT,
                before=_MAYBE_TEXT,
                after=_MAYBE_TEXT,
                reason=_TEXT,
                handoff={"type": "boolean"},
                warm_up={"type": "boolean"},
                why=_TEXT,
            )
        ),
        rounds=_COUNT,
        delay=_NUMBER,
        longest=_NUMBER,
        before={"type": "object", "additionalProperties": _COUNT},
        after={"type": "object", "additionalProperties": _COUNT},
        failure=_or_null(_ref("Failure")),
    ),
    "Done": _object(done={**_TEXT, "description": "What was done."}),
    "Health": {"type": "object", "required": ["status"], "properties": {"status": _TEXT}},
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answers(schema: dict[str, Any], *errors: str) -> dict[str, Any]:
    told = {
        "400": "A parameter that cannot work.",
        "401": "No token, or not the one.",
        "403": "The service was not started with --allow-actions.",
        "404": "There is no such thing.",
        "409": "Nobody would be left on the ring.",
        "413": "The body is larger than a mebibyte.",
        "415": "The body is not JSON.",
        "429": "Too many wrong tokens.",
        "503": "Redis does not answer, and never did; or it refuses.",
    }
    return {
        "200": {"description": "The answer.", "content": _json(schema)},
        **{code: {"description": told[code], "content": _json(_ref("Error"))} for code in errors},
    }


def _in_query(name: str, about: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": about,
        "schema": schema,
    }


_RING: Final = _in_query("ring", "The ring's name.", _NAME, required=True)
_GROUP: Final = _in_query("group", "The group's name.", _NAME, required=True)
_MANY: Final = {"type": "array", "items": _NAME, "maxItems": 100}


def _get(
    about: str, answer: str, *parameters: dict[str, Any], errors: tuple[str, ...] = ()
) -> dict[str, Any]:
    told = ("400", "404", *errors, "503") if parameters else errors
    schema = _ref(answer)
    return {
        "get": {
            "summary": about,
            **({"parameters": list(parameters)} if parameters else {}),
            "responses": _answers(schema, *told),
        }
    }


def _stream(about: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    answers = _answers({}, "400", "404", "503")
    answers["200"] = {
        "description": "Server-sent events without an end; the data of each is a Change.",
        "content": {"text/event-stream": {"schema": _TEXT}},
    }
    return {"get": {"summary": about, "parameters": list(parameters), "responses": answers}}


def _act(about: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = _object(
        by={
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "Who asks; the history tells.",
        },
        **properties,
    )
    return {
        "post": {
            "summary": about,
            "security": [{"token": []}],
            "requestBody": {"required": True, "content": _json(schema)},
            "responses": _answers(
                _ref("Done"), "400", "401", "403", "404", "413", "415", "429", "503"
            ),
        }
    }


def _paths() -> dict[str, Any]:
    joins = _in_query("join", "A name that joins; may come more than once.", _MANY, required=False)
    leaves = _in_query(
        "leave", "A name that leaves; may come more than once.", _MANY, required=False
    )
    after = _in_query("after", "The id of a change: those after it.", _TEXT, required=False)
    return {
        "/api/rings": {
            "get": {
                "summary": "All rings.",
                "responses": _answers(_object(rings=_list(_ref("RingInList")))),
            }
        },
        "/api/ring": _get("A ring.", "Ring", _RING),
        "/api/nodes": _get("The nodes of a ring.", "Nodes", _RING),
        "/api/owner": _get(
            "Who owns a key, who would next, and who holds its lock.",
            "Owner",
            _RING,
            _in_query(
                "key",
                "The key; at most 16,384 bytes of UTF-8.",
                {**_TEXT, "minLength": 1},
                required=True,
            ),
        ),
        "/api/owners": {
            "post": {
                "summary": "Who owns each of many keys.",
                "requestBody": {
                    "required": True,
                    "content": _json(
                        _object(
                            ring=_NAME,
                            keys={
                                "type": "array",
                                "items": {"type": "string", "minLength": 1},
                                "maxItems": 10_000,
                            },
                        )
                    ),
                },
                "responses": _answers(_ref("Owners"), "400", "404", "413", "415", "503"),
            }
        },
        "/api/changes": _get(
            "The end of a ring's history, oldest first.",
            "Changes",
            _RING,
            after,
            _in_query(
                "count",
                "The last so many of them.",
                {"type": "integer", "minimum": 1, "maximum": 500},
                required=False,
            ),
        ),
        "/api/changes/live": _stream("A ring's history as it happens.", _RING, after),
        "/api/plan": _get(
            "What would move if nodes joined and left. Where a joining node puts its points is up "
            "to chance with random placement: this is one possible outcome.",
            "Plan",
            _RING,
            joins,
            leaves,
            _in_query(
                "replicas",
                "Points of a node that joins.",
                {"type": "integer", "minimum": 1, "maximum": 4096},
                required=False,
            ),
            _in_query(
                "placement",
                "Where nodes that join put their points.",
                {"enum": ["random", "balanced"]},
                required=False,
            ),
            errors=("409",),
        ),
        "/api/groups": {
            "get": {
                "summary": "All partition groups.",
                "responses": _answers(_object(groups=_list(_ref("GroupInList")))),
            }
        },
        "/api/group": _get("A partition group.", "Group", _GROUP),
        "/api/group/plan": _get(
            "What would move if members joined and left; without either, what is moving.",
            "GroupPlan",
            _GROUP,
            joins,
            leaves,
            _in_query(
                "partitions",
                "Another number of partitions.",
                {"type": "integer", "minimum": 1, "maximum": 100_000},
                required=False,
            ),
        ),
        "/api/act/remove": _act("Take a node off a ring.", ring=_NAME, node=_NAME),
        "/api/act/release": _act(
            "Take a lock away from its holder.",
            ring=_NAME,
            key={**_TEXT, "minLength": 1},
            token={**_TEXT, "pattern": "^[0-9]{1,20}$", "description": "The lock's token."},
        ),
        "/api/act/rebalance": _act(
            "Let a group move partitions without the rest of its rebalance delay.", group=_NAME
        ),
        "/healthz": _get("Whether the service lives.", "Health"),
        "/readyz": {
            "get": {
                "summary": "Whether Redis answers it.",
                "responses": {
                    **_answers(_ref("Health")),
                    "503": {
                        "description": "It does not; since when, and why.",
                        "content": _json(_ref("Health")),
                    },
                },
            }
        },
    }


def document(base_path: str) -> dict[str, Any]:
    """The description.

    Args:
        base_path: what every path begins with.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hashring",
            "version": __version__,
            "description": "Rings and partition groups on one Redis. What the answers say is as "
            "of the last look at Redis, at most a second or so ago; `failure` says when it is "
            "older. Names and keys are UTF-8.",
        },
        "servers": [{"url": base_path or "/"}],
        "paths": _paths(),
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
