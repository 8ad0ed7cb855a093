"""
Headers and fields that go along with the requests to a model, as data that may stand in a journal.

A header that logs in must name an environment variable, as in ``Bearer ${GATEWAY_KEY}``. The journal holds
that text, and the request the value that the variable has in the process which sends it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NewType, cast

from .errors import ConfigError
from .secrets import is_secret

# Names of headers and their values, in the order in which they were given.
HeaderPairs = NewType("HeaderPairs", tuple[tuple[str, str], ...])

# The text of a JSON object, or empty.
JSONObjectText = NewType("JSONObjectText", str)

# The texts of JSON objects, each the spec of a tool that the provider runs.
ProviderTools = NewType("ProviderTools", tuple[str, ...])

# What stands in the value of a header for an environment variable.
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Before the name of a header that takes the session's name; any other name is that of a field of the body.
HEADER_FIELD = "header:"

# Headers that the transport or the wire sets itself.
OWN_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("host", "transfer-encoding"),
    }
)

# Words of a header's name behind which the value opens something.
_LOGIN_WORDS = ("auth", "key")

# What the values of credentials begin with, whatever their header is called.
_CREDENTIAL = re.compile(r"(?i)\s*(?:bearer\s|basic\s|sk-|pk-|ghp_|github_pat_|xox[a-z]-|eyJ[\w-]{8})")

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def as_header_pairs(headers: Mapping[str, str] | Iterable[tuple[str, str]] | str) -> HeaderPairs:
    """
    *headers* as pairs; a text is a JSON object of them.

    Raises `ConfigError` for a header that the wire sets itself, for characters that no header can hold, and
    for a credential that is written out.
    """
    if isinstance(headers, str):
        headers = cast("dict[str, str]", _parsed("extra_headers", headers)) if headers.strip() else {}
    if isinstance(headers, Mapping):
        headers = cast("Mapping[str, str]", headers).items()
    pairs = tuple([(name, value) for name, value in headers])
    for name, value in pairs:
        _check_header(name, value)
    return HeaderPairs(pairs)


def _check_header(name: object, value: object) -> None:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        msg = f"extra_headers: {name!r} is not the name of a header; use letters, digits and '-'"
        raise ConfigError(msg)
    if name.lower() in OWN_HEADERS:
        msg = f"extra_headers: {name!r} is set by the wire itself; leave it out"
        raise ConfigError(msg)
    # The value is not shown: it may be a secret, and errors end up in logs.
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        msg = f"extra_headers: {name!r} must be printable ASCII text; got another value"
        raise ConfigError(msg)
    if not VARIABLE.search(value) and (logs_in(name) or _CREDENTIAL.match(value)):
        fix = "name an environment variable in it, such as 'Bearer ${GATEWAY_KEY}'"
        msg = f"extra_headers: {name!r} looks like a credential, and a journal would hold it; {fix}"
        raise ConfigError(msg)


def logs_in(header: str) -> bool:
    """Whether the value of *header* opens something, by its name."""
    return is_secret(header, _LOGIN_WORDS)


def shown_headers(headers: HeaderPairs) -> str:
    """The names in *headers*: specs end up in logs and tracebacks, and values may be a person's own."""
    return repr({name: "..." for name, _ in headers})


def as_object_text(value: Mapping[str, object] | str, what: str = "extra_body") -> JSONObjectText:
    """*value* as the text of a JSON object; `ConfigError` where it is none, or holds a credential."""
    if isinstance(value, str):
        if not value.strip():
            return JSONObjectText("")
        value = _parsed(what, value)
    if not value:
        return JSONObjectText("")
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, default=_number)
        credentials = [*_credentials(value)]
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"{what} must be an object that JSON can hold: {error}"
        raise ConfigError(msg) from error
    if credentials:
        fix = "pass api_key, or name an environment variable in extra_headers"
        msg = f"{what}: {credentials[0]!r} looks like a credential, and a journal would hold it; {fix}"
        raise ConfigError(msg)
    return JSONObjectText(text)


def _number(value: object) -> float:
    if isinstance(value, Decimal):  # as TOML has its numbers here
        return float(value)
    msg = f"{value!r} is not JSON"
    raise TypeError(msg)


def _parsed(what: str, text: str) -> dict[str, Any]:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{what} must be a JSON object; got {text!r:.100} ({error})"
        raise ConfigError(msg) from error
    if not isinstance(parsed, dict):
        msg = f"{what} must be a JSON object; got {text!r:.100}"
        raise ConfigError(msg)
    return cast("dict[str, Any]", parsed)


def _credentials(value: object) -> Iterator[str]:
    """The names in *value*, at any depth, whose text is a credential."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[object, object]", value).items():
            if isinstance(inner, str) and inner and (is_secret(str(name)) or _CREDENTIAL.match(inner)):
                yield str(name)
            yield from _credentials(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Iterable[object]", value):
            yield from _credentials(inner)


# What the types of tools begin with that a provider describes and its client runs, and the types of their
# calls. Such a call waits for a result that no performer here makes.
CLIENT_TOOLS = (
    *("function", "custom", "namespace"),
    *("computer", "local_shell", "apply_patch", "bash_", "text_editor_", "memory_"),
)

# The environments of a Responses shell that are the provider's.
_HOSTED_SHELLS = frozenset({"container_auto", "container_reference"})


def as_provider_tools(specs: Iterable[Mapping[str, object] | str] | str) -> ProviderTools:
    """
    *specs* of tools that the provider runs, as texts of JSON objects; a text is a JSON list of them.

    Raises `ConfigError` for a spec without a type, or with that of a tool which the client has to run.
    """
    if isinstance(specs, str):
        specs = cast("list[Mapping[str, object]]", _parsed_list(specs)) if specs.strip() else ()
    if isinstance(specs, Mapping):
        msg = f"provider_tools must be a list of specs; got one of them (write it as ({dict(specs)!r},))"
        raise ConfigError(msg)
    return ProviderTools(tuple([_provider_tool(spec) for spec in specs]))


def _parsed_list(text: str) -> list[Any]:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, list):
        msg = f"provider_tools must be a JSON list of objects; got {text!r:.100}"
        raise ConfigError(msg)
    return parsed


def _provider_tool(spec: object) -> str:
    what = "a spec of provider_tools"
    if not isinstance(spec, Mapping | str):
        msg = f"{what} must be a mapping with a 'type'; got {spec!r:.100}"
        raise ConfigError(msg)
    text = as_object_text(cast("Mapping[str, object] | str", spec), what)
    tool = cast("dict[str, Any]", json.loads(text or "{}"))
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        msg = f"{what} must have a 'type', such as 'web_search'; got {text!r:.100}"
        raise ConfigError(msg)
    if fix := _why_not_run(kind, tool):
        msg = f"provider_tools: the provider does not run {kind!r} by itself; {fix}"
        raise ConfigError(msg)
    return text


def _why_not_run(kind: str, tool: Mapping[str, Any]) -> str:
    """What to do about a *tool* whose calls the client has to answer; empty where the provider runs it."""
    if kind.startswith(CLIENT_TOOLS):
        return "make it a tool of the agent"
    environment = tool.get("environment")
    if kind == "shell" and not (isinstance(environment, dict) and environment.get("type") in _HOSTED_SHELLS):
        return "give it an environment of the provider's, such as {'type': 'container_auto'}"
    if kind == "tool_search" and tool.get("execution") == "client":
        return "leave its execution out"
    # The provider would ask before each call, in a form that nothing here answers.
    if kind == "mcp" and tool.get("require_approval") != "never":
        return "set require_approval to 'never', or connect the server as tools of the agent"
    return ""


def session_field(instance: object, attribute: object, value: str) -> None:  # noqa: ARG001  # as attrs calls validators
    """``header:NAME``, or the name of a field, with dots between the names of objects around it."""
    header = value.startswith(HEADER_FIELD)
    name = value.removeprefix(HEADER_FIELD)
    fits = (
        _HEADER_NAME.fullmatch(name) and name.lower() not in OWN_HEADERS if header else all(name.split("."))
    )
    if value and not fits:
        msg = f"session_field must be a field such as 'metadata.session_id', or 'header:NAME'; got {value!r}"
        raise ConfigError(msg)
