"""What is secret by its name, in arguments and in text, and what stands in its place."""

from __future__ import annotations

import time
from typing import Any, Literal

import attrs
import pytest

from turnwheel import Agent, Tool, tool
from turnwheel.effects.errors import ArgumentError, ToolDefinitionError
from turnwheel.effects.secrets import (
    ANY,
    WORDS,
    Json,
    Secrets,
    is_placeholder,
    is_secret,
    placeholder,
    secrets_in,
    words_of,
)
from turnwheel.performers.secrets import (
    ENTRY_COST,
    MemoryVault,
    fill_in,
    is_searchable,
    mask,
    redact,
    redact_text,
    search_stems,
    secret_test,
)
from turnwheel.states.rules.schema import problem

DIGITS = "0123456789ab"
STANDS = f"[secret password {DIGITS}]"


def shown(name: str, value: Json) -> str:
    """In place of a placeholder: what it would stand for."""
    return f"<{name}={value}>"


# Names


@pytest.mark.parametrize("name", WORDS)
def test_each_of_the_words_is_secret_in_any_spelling(name: str) -> None:
    """As it stands, in capitals, in camel case, with dashes and with more around it."""
    first, *rest = name.split("_")
    camel = first + "".join(map(str.title, rest))
    for spelled in (
        name,
        name.upper(),
        camel,
        name.replace("_", "-"),
        f"db_{name}",
        f"{camel}Old",
        f"{name}2",
    ):
        assert is_secret(spelled), spelled


@pytest.mark.parametrize(
    "name",
    [
        *("author", "keyword", "key", "keys", "max_tokens", "tokens", "compass", "tokenizer", "secretary"),
        *(
            "token_limit",
            "token_type",
            "maxToken",
            "next_page_token",
            "pageToken",
            "secret_name",
            "hasPassword",
        ),
        *("password_file", "cookie_policy", "api_key_id", "private_key_path", "token_count", "authority", ""),
    ],
)
def test_what_only_sounds_like_a_secret_is_none(name: str) -> None:
    """Names of other things, of counts, and of what is said about a secret."""
    assert not is_secret(name)


@pytest.mark.parametrize("name", ["passwords", "apiKeys", "credentials", "cookies", "client_secrets"])
def test_several_secrets_are_secret(name: str) -> None:
    """Whoever names them in the plural hides no less; only tokens are mostly something else."""
    assert is_secret(name)


def test_more_words_can_be_secret_and_names_none() -> None:
    """What an agent says of them counts; a word of its own is looked for in all names."""
    secrets = Secrets(words=("pin", "account_number"), plain=("token",))
    names = ("pin", "card_pin_2", "accountNumber", "account", "token", "access_token", "pin_id")
    assert [secrets.names(name) for name in names] == [True, True, True, False, False, True, True]
    assert not Secrets(redact=False).names("password")
    with pytest.raises(ArgumentError, match=r"write \('pin',\)"):
        Secrets(words="pin")


def test_a_name_is_taken_apart_into_words() -> None:
    """Wherever one of them ends."""
    assert words_of("AWSSecretKey-id_2") == ("aws", "secret", "key", "id")


# Tools


@attrs.frozen
class Account:
    """What a tool may want to have."""

    user: str
    db_password: str


def test_a_tool_knows_which_of_its_arguments_are_secret() -> None:
    """At any depth, and not what is a flag, a count or one of a few."""

    @tool
    def log_in(  # noqa: PLR0913  # what a tool may have
        *,
        url: str,
        account: Account,
        others: list[Account],
        api_token: str | None,
        use_token: bool,
        token: int,
        auth_token: Literal["a", "b"],
    ) -> None:
        """Log in."""

    assert log_in.spec.secrets == ("api_token", "db_password")


@pytest.mark.parametrize(
    "kind", [dict[str, str], dict[str, Any], Any, list[Any], list[dict[str, int]]], ids=str
)
def test_a_tool_that_takes_any_names_has_them_looked_at(kind: Any) -> None:
    """Headers and the like: what their names are is seen when they come."""

    def fetch(url: str, more: Any) -> None:
        """Fetch."""

    fetch.__annotations__["more"] = kind
    assert tool(fetch).spec.secrets == (ANY,)


def test_a_tool_says_what_else_is_secret_and_what_is_not() -> None:
    """Its own word counts."""

    @tool(secrets=["pin"], plain=["token"])
    def pay(pin: int, token: str, password: str) -> None:
        """Pay."""

    assert pay.spec.secrets == ("password", "pin")
    assert pay.plain == ("token",)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            {"secrets": ["pin"]},
            r"pay' cannot be a tool: the secret 'pin' names no argument; there are: amount",
        ),
        ({"secrets": "amount"}, r"several names are wanted, not one: write \['amount'\]"),
        ({"plain": [1]}, r"a name is text, not 1"),
    ],
)
def test_a_name_that_would_hide_nothing_is_refused(told: dict[str, Any], says: str) -> None:
    """A slip of the pen must not leave a secret open."""

    def pay(amount: int) -> None:
        """Pay."""

    with pytest.raises(ToolDefinitionError, match=says):
        tool(**told)(pay)


def test_references_of_a_schema_are_looked_into() -> None:
    """Also where a schema is not of our making."""
    schema = '{"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "object", "properties": {"pwd": {"type": "string"}}}}}'  # noqa: E501  # one line of JSON
    assert secrets_in(schema) == ("pwd",)


@tool(plain=["cookie"])
def visit(url: str, cookie: str = "", password: str = "", seat: str = "") -> str:
    """Visit a page."""
    return url + cookie + password + seat


@pytest.mark.parametrize(
    ("secrets", "names"),
    [
        (Secrets(), ("password",)),
        (Secrets(redact=False), ()),
        (Secrets(redact=False, words=("seat",)), ()),
        (Secrets(words=("seat",)), ("password", "seat")),
        (Secrets(plain=("password",)), ()),
        (Secrets(words=("cookie",)), ("password",)),
    ],
)
def test_an_agent_has_the_last_word_on_its_tools(secrets: Secrets, names: tuple[str, ...]) -> None:
    """What it says holds for all of them, but for what a tool says is none."""
    agent = Agent(model="wire:m", base_url="http://localhost", tools=[visit], secrets=secrets)
    assert agent.config.tools[0].secrets == names


def test_the_built_in_tools_have_no_secrets() -> None:
    """So they are as quick as they were."""
    from turnwheel import builtin_tools  # noqa: PLC0415  # beside what is said of it

    tools: tuple[Tool[..., Any], ...] = builtin_tools()
    assert {each.spec.secrets for each in tools} == {()}


# The machine's check


SCHEMA = '{"type":"object","properties":{"pin":{"type":"integer"},"of":{"type":"object","properties":{"n":{"enum":[1]}}},"n":{"type":"integer"}}}'  # noqa: E501  # one line of JSON


@pytest.mark.parametrize(
    ("arguments", "secrets", "fits"),
    [
        ({"pin": STANDS}, ("pin",), True),
        ({"pin": STANDS}, (ANY,), True),
        ({"of": {"n": STANDS}}, ("of",), True),
        ({"of": STANDS}, ("of",), True),
        ({"pin": STANDS}, (), False),
        ({"n": STANDS}, ("pin",), False),
        ({"pin": "1234"}, ("pin",), False),
        ({"pin": f"{STANDS} "}, ("pin",), False),
        ({"pin": "[secret pin]"}, ("pin",), False),
        ({"of": {"n": 2}}, ("of",), False),
    ],
)
def test_a_placeholder_is_right_for_a_secret_and_for_nothing_else(
    arguments: dict[str, object], secrets: tuple[str, ...], fits: object
) -> None:
    """Whatever type the schema wants there; anything else is checked as ever."""
    assert (problem(SCHEMA, arguments, secrets) == "") is fits


# Placeholders


@pytest.mark.parametrize(
    "name", ["password", "X-Api-Key", "API_KEY", "パスワード", "", "a" * 200, 'a"b]c[\\']
)
def test_a_placeholder_is_known_as_one_whatever_its_name(name: str) -> None:
    """Nothing that a key may have breaks it, nor the JSON it stands in."""
    made = placeholder(name, DIGITS)
    assert is_placeholder(made)
    assert not {'"', "\\"} & {*made}


@pytest.mark.parametrize("value", ["", "[secret a 12]", f"{STANDS}.", STANDS.upper(), 1, None, [STANDS]])
def test_anything_else_is_none(value: object) -> None:
    """Not with more around it, nor with other digits."""
    assert not is_placeholder(value)


# Values taken apart


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"pin": "x", "a": "y"}, {"pin": "<pin=x>", "a": "y"}),
        ({"a": [{"pin": 7}]}, {"a": [{"pin": "<pin=7>"}]}),
        (
            {"pin": {"a": ["x", None, True, ""], "b": 1.5}},
            {"pin": {"a": ["<pin=x>", None, True, ""], "b": "<pin=1.5>"}},
        ),
        ({"pin": None}, {"pin": None}),
        ({"pin": False}, {"pin": False}),
        ({"pin": STANDS}, {"pin": STANDS}),
        ({"token": 5, "pin": 5}, {"token": 5, "pin": "<pin=5>"}),
    ],
)
def test_texts_and_numbers_below_a_secret_name_are_taken_out(value: Json, expected: Json) -> None:
    """All of them, at any depth; a flag and nothing tell nothing."""
    there = frozenset({"pin", "token", "a", "b"})
    assert redact(value, secret_test(["pin"], Secrets(), there), shown) == expected


@pytest.mark.parametrize("name", ["Pin", "PIN", "pin2", "api_key", "apiKey"])
def test_a_name_that_a_tool_does_not_have_is_looked_at(name: str) -> None:
    """A model may spell it as it likes, or make one up; only of what is there its tool says what it is."""
    there = frozenset({"pin", "token", "user"})
    is_named = secret_test(["pin"], Secrets(), there)
    assert is_named(name)
    assert not is_named("token")
    assert not is_named("User")
    assert not secret_test(["pin"], Secrets(plain=("api_key",)), there)("api_key")


@pytest.mark.parametrize("part", ["x", "aB", "a_"])
def test_a_name_longer_than_any_is_looked_at_in_no_time(part: str) -> None:
    """Only at its ends, and they are all that is kept of it; so nobody makes others wait by a name."""
    begun = time.monotonic()
    for number in range(20):
        long = f"{number}{part * 500_000}"
        assert not is_secret(long)
        assert is_secret(f"{long}_password")
        assert is_secret(f"password_{long}")
        assert len(placeholder(long, "0" * 12)) < 80
    assert time.monotonic() - begun < 2.0


@pytest.mark.parametrize("redact", [None, 0, "no", "yes"])
def test_a_switch_is_on_or_off(redact: Any) -> None:
    """Nothing else, or it would be off where somebody thinks that it is on."""
    with pytest.raises(ArgumentError, match="redact must be a bool"):
        Secrets(redact=redact)


@pytest.mark.parametrize("secrets", [True, None, ["pin"], {"pin": "1234"}])
def test_an_agent_takes_secrets_and_nothing_that_looks_like_them(secrets: Any) -> None:
    """It says what it was given, and not the value."""
    with pytest.raises(ArgumentError, match="secrets is a Secrets") as caught:
        Agent(model="one", secrets=secrets)
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize("vault", [None, True, {}, Secrets()])
def test_an_agent_takes_a_vault_that_can_keep_and_find(vault: Any) -> None:
    """Without one it has one of its own, and None is not that."""
    with pytest.raises(ArgumentError, match="a vault has the methods keep and find"):
        Agent(model="one", vault=vault)


def test_where_any_name_may_come_names_are_looked_at() -> None:
    """With the agent's own words for it."""
    value: Json = {"Authorization": "x", "pin": "y", "Accept": "z"}
    expected = {"Authorization": "<Authorization=x>", "pin": "<pin=y>", "Accept": "z"}
    assert redact(value, secret_test([ANY], Secrets(words=("pin",))), shown) == expected


def test_values_are_put_back_as_they_were() -> None:
    """Alone with their type, in other text as text, and what is not known stays."""
    value: Json = {"a": STANDS, "b": [f"Bearer {STANDS}!"], "c": "[secret x ffffffffffff]", "d": 1}
    assert fill_in(value, {DIGITS: 5}) == {"a": 5, "b": ["Bearer 5!"], "c": "[secret x ffffffffffff]", "d": 1}
    assert fill_in(STANDS, {DIGITS: [1]}) == [1]
    assert fill_in(STANDS, {DIGITS: "\\1"}) == "\\1"
    assert fill_in(f"{STANDS}.", {DIGITS: "\\1"}) == "\\1."


# Text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"api_key": "sk"}', '{"api_key": "<api_key=sk>"}'),
        ('{ "a" : [ {"secret"\n:\n"s"} ] }', '{ "a" : [ {"secret"\n:\n"<secret=s>"} ] }'),
        ('at 5: {"pwd":"p"} and {"token":"t"} too', 'at 5: {"pwd":"<pwd=p>"} and {"token":"<token=t>"} too'),
        ('{"password":"a\\"b\\u0041"}', '{"password":"<password=a"bA>"}'.replace('a"b', 'a\\"b')),
        ('{"passcode": 12, "token": 12}', '{"passcode": "<passcode=12>", "token": 12}'),
        ('{"secrets": {"a": "x", "b": [1]}}', '{"secrets": {"a": "<secrets=x>", "b": ["<secrets=1>"]}}'),
        ('{"cookie": ["a", "b"]}', '{"cookie": ["<cookie=a>", "<cookie=b>"]}'),
        ('{"password": {"type": "string"}}', '{"password": {"type": "string"}}'),
        ('{"password": {"password": "x"}}', '{"password": {"password": "<password=x>"}}'),
        ('{"a": 1}\n{"password": "x"}\n', '{"a": 1}\n{"password": "<password=x>"}\n'),
        ('{"password": "cut of', '{"password": "<password="cut of>"'.replace('="', '=\\"')),
        ('"password": password, "token": None', '"password": password, "token": None'),
        ('{"password": "", "use_token": true, "secret": null}',) * 2,
        (f'{{"password": "{STANDS}"}}',) * 2,
        ("PATH=/bin\nAPI_KEY=sk-1\n", "PATH=/bin\nAPI_KEY=<API_KEY=sk-1>\n"),
        ("export DB_PASSWORD='a b'", "export DB_PASSWORD='<DB_PASSWORD=a b>'"),
        ('    12\tMY_TOKEN="x"', '    12\tMY_TOKEN="<MY_TOKEN=x>"'),
        (f"API_KEY={STANDS}",) * 2,
        ("TOKEN=$(cat x)\nTOKEN=$X\nTOKEN=\nlogin(password=password)\n  token=token",) * 2,
        ("the password is hunter2",) * 2,
        ("",) * 2,
    ],
)
def test_a_value_with_a_secret_name_is_taken_out_of_text(text: str, expected: str) -> None:
    """JSON wherever it stands, with all that is around it left alone, and what `env` prints."""
    secrets = Secrets()
    assert redact_text(text, secrets, search_stems(secrets), shown) == expected


def test_words_of_an_agents_own_are_found_in_text() -> None:
    """Also where none of those stands that are known anyway."""
    secrets = Secrets(words=("seat",), plain=("password",))
    text = '{"seat": "4a", "password": "x"}'
    assert (
        redact_text(text, secrets, search_stems(secrets), shown) == '{"seat": "<seat=4a>", "password": "x"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        *('"' * 300_000, '"a' * 150_000, '"password":"\\' * 25_000, '"password":{' * 25_000),
        *(
            '"passwords":[' * 25_000,
            '"passwords":[1,' * 25_000,
            '"passwords":{' * 25_000,
            '"password":\n"' * 25_000,
        ),
        *(
            '"passwords":[[[[' * 20_000,
            "A_KEY=x\n" * 40_000,
            "A" * 300_000 + "key=",
            '"password"' + " " * 300_000,
        ),
        *(("    1\t" * 50_000) + "key=", '{"password":' * 900 + '"x"' + "}" * 900 + " " * 200_000),
    ],
)
def test_no_text_takes_long_to_look_through(text: str) -> None:
    """What a tool returns is anybody's: each character is looked at a few times and no more."""
    secrets = Secrets()
    begun = time.process_time()
    redact_text(f"{text} key", secrets, search_stems(secrets), shown)
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("value", "tells"),
    [
        *(("hunter2", True), ("sk-1234", True), ("60371293", True), ("correcthorsebatt", True)),
        *(("secret", False), ("production", False), ("123456", False), ("a1", False), ("", False)),
    ],
)
def test_only_what_is_no_word_and_no_number_is_looked_for(value: str, tells: object) -> None:
    """Others turn up in any text."""
    assert is_searchable(value) is tells


def test_of_two_values_the_longer_one_is_found() -> None:
    """One may be the beginning of the other."""
    assert mask("ab-12-cd ab-12", {"ab-12": "1", "ab-12-cd": "2"}) == "2 1"


# The vault


async def test_a_vault_in_memory_keeps_values_by_session_and_forgets_the_oldest() -> None:
    """It cannot grow for ever, and shows nothing."""
    vault = MemoryVault(most=3 * ENTRY_COST + 10)
    await vault.keep("s", "a", "1234")
    await vault.keep("t", "a", "5678")
    assert [await vault.find(session, "a") for session in ("s", "t", "u")] == ["1234", "5678", None]
    await vault.keep("s", "a", "12345")
    await vault.keep("s", "b", "9")
    assert [await vault.find("s", "a"), await vault.find("t", "a"), await vault.find("s", "b")] == [
        "12345",
        "5678",
        "9",
    ]
    await vault.keep("s", "c", "0")
    assert [await vault.find("t", "a"), await vault.find("s", "a")] == [None, "12345"]
    assert repr(vault) == "<MemoryVault of 3 values>"
