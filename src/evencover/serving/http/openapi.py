"""The OpenAPI description of the service."""

from __future__ import annotations

from typing import Any

import evencover
from evencover.serving.http.requests import ARROW, JSON
from evencover.serving.http.service import Limits


def openapi(about: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Describe the endpoints of a service whose model is as `about` says."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "evencover", "version": evencover.__version__},
        "paths": {
            "/v1/sets": {
                "post": _post(
                    "The prediction set of each row, the most probable class first.",
                    _body(about, limits, with_labels=False),
                    "Sets",
                )
            },
            "/v1/labels": {
                "post": _post(
                    "Labelled rows, which the monitor counts as covered or not.",
                    _body(about, limits, with_labels=True),
                    "Counted",
                )
                | {"security": [{"token": []}]}
            },
            "/v1/coverage": {"get": _get("What the monitor says of every class.")},
            "/v1/model": {"get": _get("What the model is.")},
            "/healthz": {"get": _get("Whether the service is up.")},
            "/metrics": {"get": _get("Figures for Prometheus.", "text/plain")},
            "/": {"get": _get("The live page.", "text/html")},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Refused": _object({"error": {"type": "string"}}, ["error"]),
                "Sets": _object(
                    {
                        "sets": _list(_list({"type": "integer"})),
                        "names": _list(_list({"type": "string"})),
                        "sizes": _list({"type": "integer"}),
                        "model": {"type": "string"},
                    },
                    ["sets", "sizes", "model"],
                ),
                "Counted": _object(
                    {
                        "counted": {"type": "integer"},
                        "repeated": {"type": "integer"},
                        "model": {"type": "string"},
                    },
                    ["counted", "repeated", "model"],
                ),
            },
        },
    }


def _body(about: dict[str, Any], limits: Limits, *, with_labels: bool) -> dict[str, Any]:
    n_classes = about["n_classes"]
    row = _list({"type": "number"}) | {"minItems": n_classes, "maxItems": n_classes}
    row |= {"description": f"The {about['reads']} of the classes."}
    some = {"minItems": 1, "maxItems": limits.rows}
    text_or_number = {"anyOf": [{"type": "string"}, {"type": "integer", "format": "int64"}]}
    fields = {"rows": _list(row) | some, "ids": _list(text_or_number) | some}
    required = ["rows"]
    if about["needs_groups"]:
        fields["groups"] = _list(text_or_number) | some
        required.append("groups")
    if with_labels:
        fields["labels"] = _list(text_or_number) | some
        required.append("labels")
    return _object(fields, required)


def _post(summary: str, body: dict[str, Any], answer: str) -> dict[str, Any]:
    refusals = {
        "400": "The body cannot be read.",
        "401": "The token is missing or wrong.",
        "403": "The service was started without a token and takes no labels.",
        "408": "The body did not arrive in time.",
        "413": "The body is too large.",
        "415": "The body is neither JSON nor Arrow.",
        "422": "The rows are not what they must be.",
        "503": "Too many requests at once, or the labels cannot be kept now; ask again.",
    }
    if answer == "Sets":
        del refusals["401"], refusals["403"]
    content = {JSON: {"schema": {"$ref": f"#/components/schemas/{answer}"}}}
    if answer == "Sets":
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: {"schema": body}}},
        "responses": {
            "200": {"description": summary, "content": content},
            **{
                status: {
                    "description": why,
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Refused"}}},
                }
                for status, why in refusals.items()
            },
        },
    }


def _get(summary: str, kind: str = JSON) -> dict[str, Any]:
    schema = {"type": "object"} if kind == JSON else {"type": "string"}
    content = {kind: {"schema": schema}}
    return {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}},
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
