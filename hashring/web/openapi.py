"""The API's operations, and their description as OpenAPI 3.1.

The types of answers and bodies are those of :mod:`.api_types`, the parameters those of
:mod:`.api_queries`: what reads a request also describes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hashring._version import __version__
from hashring.web import api_queries as queries
from hashring.web import api_types as api
from hashring.web.actions import ACTIONS, plan_path
from hashring.web.base_action import Action, PlannedAction
from hashring.web.parameter_kinds import described
from hashring.web.ring_actions import PlannedRingAction

_ERRORS: Final = {
    400: "A parameter that cannot work.",
    401: "No token, or not the one.",
    403: "The service was not started with --allow-actions, or this user may not act.",
    404: "There is no such thing.",
    409: "No node or member would be left, or the ring or group to forget has live ones.",
    413: "The body is larger than a mebibyte.",
    415: "The body is not JSON.",
    422: "Too much work for one request.",
    429: "Too many wrong tokens.",
    503: "Redis does not respond, or refuses; or the service is at its limits.",
}
_CONFLICTING: Final = (
    api.DrainAsked,
    api.GroupDrainAsked,
    api.ForgetAsked,
    api.GroupForgetAsked,
)
_TEXT: Final = {"type": "string"}


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


@dataclass(frozen=True)
class GetOperation:
    """An operation that only reads: a GET.

    Attributes:
        about: what it answers.
        answer: the answer's type.
        query: what may be asked.
        errors: the statuses of refusals.
        stream: what it sends, if that is a stream of server-sent events.
        unwell: what a 503 says, whose answer is of the same type.
    """

    about: str
    answer: type[api.Answer]
    query: type[Any] = queries.NoQuery
    errors: tuple[int, ...] = ()
    stream: str = ""
    unwell: str = ""


_READ: Final = (400, 404, 503)


def _planned() -> Iterator[tuple[str, GetOperation]]:
    """The plans of actions."""
    for name, kind in ACTIONS.items():
        if issubclass(kind, PlannedAction):
            of_ring = issubclass(kind, PlannedRingAction)
            answer, errors = (api.PlanAnswer, _READ) if of_ring else (api.GroupPlan, (*_READ, 422))
            yield plan_path(name), GetOperation(kind.plan_about, answer, kind.planned, errors)


GET_OPERATIONS: Final[Mapping[str, GetOperation]] = {
    "/api/status": GetOperation("The verdict on all rings and groups.", api.Overview),
    "/api/rings": GetOperation("All rings, by name.", api.Rings, queries.PageQuery, (400, 503)),
    "/api/ring": GetOperation("A ring.", api.RingAnswer, queries.RingQuery, _READ),
    "/api/nodes": GetOperation(
        "The nodes of a ring, by name.", api.Nodes, queries.NodesQuery, _READ
    ),
    "/api/owner": GetOperation(
        "Who owns a key, who would next, and who holds its lock.",
        api.Owner,
        queries.OwnerQuery,
        _READ,
    ),
    "/api/changes": GetOperation(
        "The end of a ring's history, oldest first.", api.Changes, queries.ChangesQuery, _READ
    ),
    "/api/changes/live": GetOperation(
        "A ring's history as it happens.",
        api.Changes,
        queries.LiveChangesQuery,
        _READ,
        stream="Server-sent events without an end; the data of each is a ChangeAnswer.",
    ),
    "/api/plan": GetOperation(
        "What would move if nodes joined and left. Random placement leaves the points of a "
        "joining node to chance: this is one possible outcome.",
        api.PlanAnswer,
        queries.RingPlanQuery,
        (*_READ, 409, 422),
    ),
    "/api/groups": GetOperation(
        "All partition groups, by name.", api.Groups, queries.PageQuery, (400, 503)
    ),
    "/api/group": GetOperation("A partition group.", api.Group, queries.GroupQuery, _READ),
    "/api/group/plan": GetOperation(
        "What would move if members joined and left; without either, what is moving.",
        api.GroupPlan,
        queries.GroupPlanQuery,
        (*_READ, 422),
    ),
    **dict(_planned()),
}
"""What can be read from the API, by path."""

_HEALTH: Final = {
    "/healthz": GetOperation("Whether the service lives.", api.Alive),
    "/readyz": GetOperation(
        "Whether Redis responds and the service works.",
        api.Ready,
        unwell="One does not; which, why, and since when.",
    ),
}


def _get(reading: GetOperation) -> dict[str, Any]:
    responses = _responses(reading.answer, *reading.errors)
    if reading.stream:
        stream = {"text/event-stream": {"schema": _TEXT}}
        responses["200"] = {"description": reading.stream, "content": stream}
    if reading.unwell:
        responses["503"] = {"description": reading.unwell, "content": _schema(reading.answer)}
    return {
        "get": {
            "summary": reading.about,
            "parameters": described(reading.query),
            "responses": responses,
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
    conflict = (409,) if issubclass(kind.asked, _CONFLICTING) else ()
    found = _post(about, kind.asked, api.Done, 401, 403, 429, *conflict)
    found["post"]["security"] = [{"token": []}]
    return found


def _paths() -> dict[str, Any]:
    return {
        **{path: _get(reading) for path, reading in GET_OPERATIONS.items()},
        "/api/owners": _post("Who owns each of many keys.", api.OwnersAsked, api.OwnersAnswer),
        **{f"/api/act/{name}": _act(name, kind) for name, kind in ACTIONS.items()},
        **{path: _get(reading) for path, reading in _HEALTH.items()},
    }


def document(base_path: str) -> dict[str, Any]:
    """The description."""
    types = {reading.answer for reading in (*GET_OPERATIONS.values(), *_HEALTH.values())}
    types |= {api.Done, api.Error, api.OwnersAnswer, api.OwnersAsked}
    types |= {kind.asked for kind in ACTIONS.values()}
    _, schemas = msgspec.json.schema_components(
        sorted(types, key=lambda each: each.__name__), ref_template="#/components/schemas/{name}"
    )
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
