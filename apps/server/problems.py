"""Errors as problem details (RFC 9457): the one place that knows which status an error has."""

from __future__ import annotations

from http import HTTPStatus
from typing import final

import msgspec
from starlette.responses import Response

from ...effects import errors

PROBLEM_TYPE = "application/problem+json"


@final
class ProblemBody(msgspec.Struct, kw_only=True):
    """Why a request was refused, as RFC 9457 has it; *detail* says what to do."""

    status: int
    title: str
    detail: str
    type: str = "about:blank"


@final
class Refused(Exception):  # an answer with a status, as the name says
    """A request is refused with *status*; *detail* says what to do, *headers* go with the answer."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


# The first that fits.
STATUSES: tuple[tuple[type[BaseException], HTTPStatus], ...] = (
    (errors.UnknownSession, HTTPStatus.NOT_FOUND),
    (errors.UnknownRequest, HTTPStatus.NOT_FOUND),
    (errors.UnknownCall, HTTPStatus.NOT_FOUND),
    (errors.UnknownInput, HTTPStatus.NOT_FOUND),
    (errors.InputConflict, HTTPStatus.CONFLICT),
    (errors.UnknownRun, HTTPStatus.NOT_FOUND),
    (errors.SessionGone, HTTPStatus.NOT_FOUND),
    (errors.SessionBusy, HTTPStatus.CONFLICT),
    (errors.SessionClosed, HTTPStatus.CONFLICT),
    (errors.QueueFull, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.CallerError, HTTPStatus.UNPROCESSABLE_ENTITY),
    # The run here was taken over a moment ago: the same request again finds it there.
    (errors.StoreConflict, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    # The session is there, and no request can mend it.
    (errors.JournalError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


def problem(status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> Response:
    """The answer that refuses a request."""
    body = ProblemBody(status=status, title=status.phrase, detail=detail)
    return Response(msgspec.json.encode(body), status, headers, PROBLEM_TYPE)


def refusal_of(error: Exception) -> Refused:
    """*error* as an answer. Raises it again where it is a fault of the server."""
    if isinstance(error, Refused):
        return error
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if status is None:
        raise error
    return Refused(status, str(error))
