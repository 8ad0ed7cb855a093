"""What the server can be asked, each operation once: the routes and /openapi.json are made of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import Any, TypeVar, final

import attrs
from starlette.requests import Request

from ...effects.spelling import hint
from .access import Namespace
from .problems import Refused

# The largest whole number in a query or a body: every reader of JSON has it exactly.
LARGEST = 2**53 - 1

# The path of one session.
ONE_SESSION = "/api/sessions/{id}"


@final
@attrs.frozen(kw_only=True)
class HttpCall:
    """One *request* of the tenant with these *names*; *body* is what its operation takes."""

    request: Request
    names: Namespace
    body: Any = None

    @property
    def session(self) -> str:
        """The id of the session that it is about."""
        given: str = self.request.path_params["id"]
        return given

    @property
    def key(self) -> str:
        """Its `Idempotency-Key`, empty for none."""
        return self.request.headers.get("idempotency-key", "")

    @property
    def caller(self) -> str:
        """Who calls, for journals: the tenant, where there is one, and the key of the request."""
        mark = f", key {sha256(self.key.encode()).hexdigest()[:16]}" if self.key else ""
        return f"{self.names.tenant or 'a person'} over http{mark}"

    def keyed(self, what: str) -> str | None:
        """The id of *what* the request makes, which its key decides; None without one."""
        # Of the tenant and the path, too: one key may be used for a session and for its first message.
        place = f"{self.names.prefix}\n{self.request.path_params.get('id', '')}\n{what}\n{self.key}"
        return f"key-{sha256(place.encode()).hexdigest()[:32]}" if self.key else None

    def number(self, name: str, default: int, least: int = 0, most: int = LARGEST) -> int:
        """The number *name* of the query; raises `Refused` for what is none."""
        given = self.request.query_params.get(name, "")
        # Decimal digits of other scripts are numbers to Python, and a mistake here.
        if given and not (given.isascii() and given.isdecimal() and len(given) <= len(str(LARGEST))):
            detail = f"{name} must be a whole number; got {given[:50]!r}"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        value = int(given) if given else default
        if not least <= value <= most:
            detail = f"{name} must be from {least} to {most}; got {value}"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return value

    def word(self, parameter: Parameter) -> str:
        """The word of *parameter* in the query, empty without one; raises `Refused` for one it cannot be."""
        given, words = self.request.query_params.get(parameter.name, ""), parameter.schema["enum"]
        if given not in words:
            detail = f"{parameter.name} cannot be {given[:50]!r}; {hint(given, filter(None, words))}"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return given

    def check_query(self, parameters: Iterable[Parameter]) -> None:
        """Raise `Refused` where the query has another name than those of *parameters*."""
        known = [each.name for each in parameters]
        for name in self.request.query_params:
            if name not in known:
                detail = f"unknown parameter {name[:50]!r}; {hint(name, known)}"
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


# Answers a call: with what its operation gives, or with an answer of its own form.
Handler = Callable[[HttpCall], Awaitable[object]]


@final
@attrs.frozen(kw_only=True)
class Parameter:
    """A *name* in the query or the head of a request; *about* says what it is, *schema* what it may be."""

    name: str
    about: str
    schema: Mapping[str, Any] = {"type": "string"}  # never changed
    place: str = "query"


KEY = Parameter(name="Idempotency-Key", about="makes a repeat safe", place="header")


def whole(least: int, most: int = LARGEST) -> dict[str, Any]:
    """The schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most}


@final
@attrs.frozen(kw_only=True)
class Operation:
    """
    What *method* on *path* does; the first line of its handler's docstring says it.

    *takes* is the type of its body, *needed* whether there has to be one, and *large* whether files, a whole
    conversation or the arguments of a call may come in it. *gives* is the type of its answer, which has
    *status*, or the media type of one that is no JSON. *open* is for those without a token, too. *nothing*
    says when it answers without a body, which is then no content. What is *keyed* is done once for each
    `Idempotency-Key`. *refuses* are statuses of refusals besides those that follow from the other fields.
    *unsaid* lists for which bodies it answers 422 although the schema allows them.
    """

    method: str
    path: str
    handler: Handler
    takes: Any = None
    needed: bool = True
    large: bool = False
    gives: Any = None
    status: HTTPStatus = HTTPStatus.OK
    parameters: tuple[Parameter, ...] = ()
    open: bool = False
    nothing: str = ""
    keyed: bool = False
    refuses: tuple[HTTPStatus, ...] = ()
    unsaid: str = ""

    @property
    def name(self) -> str:
        """What the document calls it."""
        return getattr(self.handler, "__name__", self.path)

    @property
    def about(self) -> str:
        """What it does, in one line."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0].removesuffix(".")


F = TypeVar("F", bound=Callable[..., Awaitable[object]])


def operation(method: str, path: str, **more: Any) -> Callable[[F], F]:  # noqa: ANN401  # the fields of an operation
    """Make the method below an operation; `operations_of` finds it."""

    def declare(function: F) -> F:
        # Noted on the function: so path, body and answer stand where the work is.
        vars(function)["operation"] = partial(Operation, method=method, path=path, **more)
        return function

    return declare


def operations_of(routes: object) -> list[Operation]:
    """The operations among the methods of *routes*, in their order."""
    declared = [
        (name, vars(each).get("operation")) for name, each in vars(type(routes)).items() if callable(each)
    ]
    return [made(handler=getattr(routes, name)) for name, made in declared if made is not None]
