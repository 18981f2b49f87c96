"""The description of the API as OpenAPI 3.1: its types are those of the answers themselves."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hashring._version import __version__
from hashring.core.groups.state import EXCLUSIVE, NON_EXCLUSIVE
from hashring.web import api_types as api
from hashring.web.actions import ACTIONS, plan_path
from hashring.web.base_action import Action
from hashring.web.request_parameters import (
    MOST_JOINING,
    MOST_LEAVING,
    MOST_NODES,
    MOST_PARTITIONS,
    MOST_REPLICAS,
)
from hashring.web.watch_list import MOST
from hashring.web.watchers import EVENTS

_TYPES: Final = (
    api.Alive,
    api.Changes,
    api.Done,
    api.Error,
    api.Group,
    api.GroupPlan,
    api.Groups,
    api.Nodes,
    api.Overview,
    api.Owner,
    api.OwnersAnswer,
    api.OwnersAsked,
    api.PlanAnswer,
    api.Ready,
    api.RingAnswer,
    api.Rings,
    *(kind.asked for kind in ACTIONS.values()),
)
_ERRORS: Final = {
    400: "A parameter that cannot work.",
    401: "No token, or not the one.",
    403: "The service was not started with --allow-actions, or this user may not act.",
    404: "There is no such thing.",
    409: "No node or member would be left.",
    413: "The body is larger than a mebibyte.",
    415: "The body is not JSON.",
    422: "Too much work for one request.",
    429: "Too many wrong tokens.",
    503: "Redis does not respond, or refuses; or the service is at its limits.",
}
_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 512}


def _schema(of: type[api.Answer]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{of.__name__}"}}}


def _responses(answer: type[api.Answer], *errors: int) -> dict[str, Any]:
    return {
        "200": {"description": "The answer.", "content": _schema(answer)},
        **{
            str(code): {"description": _ERRORS[code], "content": _schema(api.Error)}
            for code in errors
        },
    }


def _query(
    name: str, about: str, schema: dict[str, Any] = _TEXT, *, required: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": about,
        "schema": schema,
    }


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _many(most: int) -> dict[str, Any]:
    return {"type": "array", "items": _NAME, "maxItems": most}


_RING: Final = _query("ring", "The ring's name.", _NAME, required=True)
_GROUP: Final = _query("group", "The group's name.", _NAME, required=True)
_NODE: Final = _query("node", "The node's name.", _NAME, required=True)
_MEMBER: Final = _query("member", "The member's name.", _NAME, required=True)
_WEIGHT: Final = _query(
    "weight",
    "The new weight; its own unless given.",
    {"type": "number", "exclusiveMinimum": 0},
)
_AFTER: Final = _query("after", "The last name of the page before.")
_PLANNED: Final = (
    _query("join", "A name that joins; may come more than once.", _many(MOST_JOINING)),
    _query("leave", "A name that leaves; may come more than once.", _many(MOST_LEAVING)),
)


def _get(
    about: str, answer: type[api.Answer], *parameters: dict[str, Any], errors: tuple[int, ...] = ()
) -> dict[str, Any]:
    return {
        "get": {
            "summary": about,
            "parameters": list(parameters),
            "responses": _responses(answer, *errors),
        }
    }


def _post(
    about: str, asked: type[api.Answer], answer: type[api.Answer], *errors: int
) -> dict[str, Any]:
    return {
        "post": {
            "summary": about,
            "requestBody": {"required": True, "content": _schema(asked)},
            "responses": _responses(answer, 400, 404, 413, 415, 503, *errors),
        }
    }


def _act(name: str, kind: type[Action[Any]]) -> dict[str, Any]:
    plan = plan_path(name)
    about = f"{kind.about} GET {plan} says what moves." if plan else kind.about
    last = (409,) if issubclass(kind.asked, api.DrainAsked | api.GroupDrainAsked) else ()
    found = _post(about, kind.asked, api.Done, 401, 403, 429, *last)
    found["post"]["security"] = [{"token": []}]
    return found


_READ: Final = (400, 404, 503)


def _paths() -> dict[str, Any]:
    live = _get(
        "A ring's history as it happens.",
        api.Changes,
        _RING,
        _query("after", "The id of a change: those after it."),
        errors=_READ,
    )
    live["get"]["responses"]["200"] = {
        "description": "Server-sent events without an end; the data of each is a ChangeAnswer.",
        "content": {"text/event-stream": {"schema": _TEXT}},
    }
    ready = _get("Whether Redis responds and the service works.", api.Ready)
    ready["get"]["responses"]["503"] = {
        "description": "One does not; which, why, and since when.",
        "content": _schema(api.Ready),
    }
    page = (_AFTER, _query("count", "The most to return.", _whole(1, MOST)))
    return {
        "/api/status": _get("The verdict on all rings and groups.", api.Overview),
        "/api/rings": _get("All rings, by name.", api.Rings, *page, errors=(400,)),
        "/api/ring": _get("A ring.", api.RingAnswer, _RING, errors=_READ),
        "/api/nodes": _get(
            "The nodes of a ring, by name.",
            api.Nodes,
            _RING,
            _AFTER,
            _query("count", "The most to return.", _whole(1, MOST_NODES)),
            errors=_READ,
        ),
        "/api/owner": _get(
            "Who owns a key, who would next, and who holds its lock.",
            api.Owner,
            _RING,
            _query(
                "key",
                "The key; at most 16,384 bytes of UTF-8.",
                {**_TEXT, "minLength": 1},
                required=True,
            ),
            errors=_READ,
        ),
        "/api/owners": _post("Who owns each of many keys.", api.OwnersAsked, api.OwnersAnswer),
        "/api/changes": _get(
            "The end of a ring's history, oldest first.",
            api.Changes,
            _RING,
            _query("after", "The id of a change: those after it."),
            _query("count", "How many of the last ones to return.", _whole(1, EVENTS)),
            errors=_READ,
        ),
        "/api/changes/live": live,
        "/api/plan": _get(
            "What would move if nodes joined and left. Random placement leaves the points of a "
            "joining node to chance: this is one possible outcome.",
            api.PlanAnswer,
            _RING,
            *_PLANNED,
            _query(
                "weight",
                "A node that joins or stays, and its new weight: worker-3=2; may come more than "
                "once.",
                _many(MOST_LEAVING),
            ),
            _query(
                "replicas",
                "Points of a node of weight 1 that joins; as most nodes of the ring have, unless "
                "given.",
                _whole(1, MOST_REPLICAS),
            ),
            _query(
                "placement",
                "Where nodes that join put their points.",
                {"enum": ["random", "balanced"]},
            ),
            errors=(*_READ, 409, 422),
        ),
        "/api/plan/drain": _get(
            "What would move if a node were drained. What nobody would own moves to null.",
            api.PlanAnswer,
            _RING,
            _NODE,
            errors=_READ,
        ),
        "/api/plan/undrain": _get(
            "What would move if a drained node were to own keys again.",
            api.PlanAnswer,
            _RING,
            _NODE,
            errors=_READ,
        ),
        "/api/plan/weight": _get(
            "What would move if a node had another weight.",
            api.PlanAnswer,
            _RING,
            _NODE,
            _WEIGHT,
            errors=_READ,
        ),
        "/api/groups": _get("All partition groups, by name.", api.Groups, *page, errors=(400,)),
        "/api/group": _get("A partition group.", api.Group, _GROUP, errors=_READ),
        "/api/group/plan": _get(
            "What would move if members joined and left; without either, what is moving.",
            api.GroupPlan,
            _GROUP,
            *_PLANNED,
            _query("partitions", "Another number of partitions.", _whole(1, MOST_PARTITIONS)),
            _query("access", "Another access type.", {"enum": [EXCLUSIVE, NON_EXCLUSIVE]}),
            errors=(*_READ, 422),
        ),
        "/api/group/plan/drain": _get(
            "What would move if a member were drained.",
            api.GroupPlan,
            _GROUP,
            _MEMBER,
            errors=(*_READ, 422),
        ),
        "/api/group/plan/undrain": _get(
            "What would move if a drained member were to have partitions again.",
            api.GroupPlan,
            _GROUP,
            _MEMBER,
            errors=(*_READ, 422),
        ),
        "/api/group/plan/weight": _get(
            "What would move if a member had another weight.",
            api.GroupPlan,
            _GROUP,
            _MEMBER,
            _WEIGHT,
            errors=(*_READ, 422),
        ),
        **{f"/api/act/{name}": _act(name, kind) for name, kind in ACTIONS.items()},
        "/healthz": _get("Whether the service lives.", api.Alive),
        "/readyz": ready,
    }


def document(base_path: str) -> dict[str, Any]:
    """The description.

    Args:
        base_path: what every path begins with.
    """
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hashring",
            "version": __version__,
            "description": "Rings and partition groups on one Redis. Answers are as of the last "
            "reading, about a second ago at most; `failure` says when it is older. Names and keys "
            "are UTF-8.",
        },
        "servers": [{"url": base_path or "/"}],
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
