"""Secrets by their names, in arguments and in text, and the placeholders in their place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest

from turnwheel import Agent, builtin_tools, tool
from turnwheel.effects.errors import ArgumentError, ToolDefinitionError
from turnwheel.effects.secrets import (
    ANY,
    SECRET_WORDS,
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
    STEMS,
    MemoryVault,
    checked_vault,
    fill_in,
    is_echoed,
    is_searchable,
    mask,
    mask_words,
    placeholders_in,
    redact,
    redact_text,
    search_stems,
    secret_test,
)
from turnwheel.states.rules.schema import problem

DIGITS = "0123456789ab"
STANDS = f"[secret password {DIGITS}]"

# Of other things, of counts, and of what is said about a secret.
PLAIN = """
    author keyword key keys max_tokens tokens compass tokenizer secretary token_limit token_type maxToken
    next_page_token pageToken secret_name hasPassword password_file cookie_policy api_key_id private_key_path
    token_count authority
"""


def shown(name: str, value: Json) -> str:
    return f"<{name}={value}>"


# Names


def test_each_of_the_words_is_secret_in_any_spelling() -> None:
    for name in SECRET_WORDS:
        first, *rest = name.split("_")
        camel = first + "".join(map(str.title, rest))
        spellings = [
            name,
            name.upper(),
            camel,
            name.replace("_", "-"),
            f"db_{name}",
            f"{camel}Old",
            f"{name}2",
        ]
        assert [spelled for spelled in spellings if not is_secret(spelled)] == []


def test_names_that_only_sound_like_a_secret_are_plain() -> None:
    """Several secrets are as secret as one; only tokens are mostly something else."""
    assert [name for name in ["", *PLAIN.split()] if is_secret(name)] == []
    several = ("passwords", "apiKeys", "credentials", "cookies", "client_secrets")
    assert [name for name in several if not is_secret(name)] == []
    assert words_of("AWSSecretKey-id_2") == ("aws", "secret", "key", "id")


def test_an_agent_may_call_more_words_secret_and_names_plain() -> None:
    secrets = Secrets(words=("pin", "account_number"), plain=("token",))
    names = ("pin", "card_pin_2", "accountNumber", "account", "token", "access_token", "pin_id")
    assert [secrets.names(name) for name in names] == [True, True, True, False, False, True, True]
    assert not Secrets(redact=False).names("password")


@pytest.mark.parametrize("part", ["x", "aB", "a_"])
def test_a_name_longer_than_any_is_looked_at_in_no_time(part: str) -> None:
    """At its ends only, and they are all that is kept of it."""
    begun = time.process_time()
    for number in range(20):
        long = f"{number}{part * 500_000}"
        assert not is_secret(long)
        assert is_secret(f"{long}_password")
        assert is_secret(f"password_{long}")
        assert len(placeholder(long, "0" * 12)) < 80
    assert time.process_time() - begun < 20


# Settings


def pay(amount: int) -> None:
    """Pay."""


def confirm(sure: bool | None = None) -> None:  # noqa: FBT001  # an argument of a tool
    """Confirm."""


REFUSED: tuple[tuple[str, Callable[[Any], object], tuple[Any, ...]], ...] = (
    (r"write \['pin'\]", lambda wrong: Secrets(words=wrong), ("pin",)),
    ("redact must be a bool", lambda wrong: Secrets(redact=wrong), (None, 0, "no", "yes")),
    (
        "Agent.secrets must be a Secrets",
        lambda wrong: Agent(secrets=wrong),
        (True, None, ["pin"], {"pin": "1234"}),
    ),
    ("has the methods keep and find", lambda wrong: Agent(vault=wrong), (None, True, {}, Secrets())),
    ("'pin' names no argument; there are: amount", lambda wrong: tool(secrets=wrong)(pay), (["pin"],)),
    ("'sure' is true or false, which", lambda wrong: tool(secrets=wrong)(confirm), (["sure"],)),
    (r"not one: write \['amount'\]", lambda wrong: tool(secrets=wrong)(pay), ("amount",)),
    ("a name is text, not 1", lambda wrong: tool(plain=wrong)(pay), ([1],)),
)


def test_a_setting_that_would_hide_nothing_is_refused() -> None:
    for why, make, several in REFUSED:
        for wrong in several:
            with pytest.raises((ArgumentError, ToolDefinitionError), match=why) as caught:
                make(wrong)
            assert "1234" not in str(caught.value)


@attrs.frozen
class Account:
    """An argument of a tool."""

    user: str
    db_password: str


def test_a_tool_knows_which_of_its_arguments_are_secret() -> None:
    """At any depth, but not a flag, a count or one of a few values; its own word counts."""

    @tool
    def log_in(  # noqa: PLR0913  # one argument of each kind
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

    @tool(secrets=["pin"], plain=["token"])
    def spend(pin: int, token: str, password: str) -> None:
        """Spend."""

    assert log_in.spec.secrets == ("api_token", "db_password")
    assert (spend.spec.secrets, spend.plain) == (("password", "pin"), ("token",))
    assert {each.spec.secrets for each in builtin_tools()} == {()}  # so they are as quick as they were
    schema = (
        '{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","properties":'
    )
    assert secrets_in(schema + '{"pwd":{"type":"string"}}}}}') == ("pwd",)


@pytest.mark.parametrize(
    "kind", [dict[str, str], dict[str, Any], Any, list[Any], list[dict[str, int]]], ids=str
)
def test_a_tool_that_takes_any_names_has_them_looked_at(kind: Any) -> None:
    def fetch(url: str, more: Any) -> None:
        """Fetch."""

    fetch.__annotations__["more"] = kind
    assert tool(fetch).spec.secrets == (ANY,)


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
        (Secrets(words=("cookie",)), ("password",)),  # a tool says that it is plain
    ],
)
def test_an_agent_has_the_last_word_on_its_tools(secrets: Secrets, names: tuple[str, ...]) -> None:
    agent = Agent(model="wire:m", base_url="http://localhost", tools=[visit], secrets=secrets)
    assert agent.config.tools[0].secrets == names


# Placeholders

NESTED = '"of":{"type":"object","properties":{"n":{"enum":[1]}}}'
SCHEMA = f'{{"type":"object","properties":{{"pin":{{"type":"integer"}},{NESTED},"n":{{"type":"integer"}}}}}}'


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
    assert (problem(SCHEMA, arguments, secrets) == "") is fits


def test_a_placeholder_is_known_as_one_whatever_its_name() -> None:
    """A name breaks neither it nor the JSON it stands in; with more around it, it is none."""
    for name in ("password", "X-Api-Key", "API_KEY", "パスワード", "", "a" * 200, 'a"b]c[\\'):
        made = placeholder(name, DIGITS)
        assert is_placeholder(made)
        assert not {'"', "\\"} & {*made}
    values = ["", "[secret a 12]", f"{STANDS}.", STANDS.upper(), 1, None, [STANDS]]
    assert [value for value in values if is_placeholder(value)] == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"pin": "x", "a": "y"}, {"pin": "<pin=x>", "a": "y"}),
        ({"a": [{"pin": 7}]}, {"a": [{"pin": "<pin=7>"}]}),
        (
            {"pin": {"a": ["x", None, True, ""], "b": 1.5}},
            {"pin": {"a": ["<pin=x>", None, True, ""], "b": "<pin=1.5>"}},
        ),
        *[({"pin": value}, {"pin": value}) for value in (None, False, STANDS)],
        ({"token": 5, "pin": 5}, {"token": 5, "pin": "<pin=5>"}),
    ],
)
def test_texts_and_numbers_below_a_secret_name_are_taken_out(value: Json, expected: Json) -> None:
    there = frozenset({"pin", "token", "a", "b"})
    assert redact(value, secret_test(["pin"], Secrets(), there), shown) == expected


def test_a_name_that_a_tool_does_not_have_is_looked_at() -> None:
    """A model may spell it as it likes, or make one up; its tool knows about those that are there."""
    there = frozenset({"pin", "token", "user"})
    is_named = secret_test(["pin"], Secrets(), there)
    assert [name for name in ("Pin", "PIN", "pin2", "api_key", "apiKey") if not is_named(name)] == []
    assert not is_named("token")
    assert not is_named("User")
    assert not secret_test(["pin"], Secrets(plain=("api_key",)), there)("api_key")
    value: Json = {"Authorization": "x", "pin": "y", "Accept": "z"}
    expected = {"Authorization": "<Authorization=x>", "pin": "<pin=y>", "Accept": "z"}
    assert redact(value, secret_test([ANY], Secrets(words=("pin",))), shown) == expected


def test_values_are_put_back_as_they_were() -> None:
    """Alone with their type, in other text as text; an unknown placeholder stays."""
    unknown = "[secret x ffffffffffff]"
    value: Json = {"a": STANDS, "b": [f"Bearer {STANDS}!"], "c": unknown, "d": 1}
    assert fill_in(value, {DIGITS: 5}) == {"a": 5, "b": ["Bearer 5!"], "c": unknown, "d": 1}
    assert fill_in(STANDS, {DIGITS: [1]}) == [1]
    assert fill_in(STANDS, {DIGITS: "\\1"}) == "\\1"
    assert fill_in(f"{STANDS}.", {DIGITS: "\\1"}) == "\\1."


# Text

UNCHANGED = [
    '{"password": {"type": "string"}}',
    '"password": password, "token": None',
    '{"password": "", "use_token": true, "secret": null}',
    f'{{"password": "{STANDS}"}}',
    f"API_KEY={STANDS}",
    "TOKEN=$(cat x)\nTOKEN=$X\nTOKEN=\nlogin(password=password)\n  token=token",
    "the password is hunter2",
    "",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"api_key": "sk"}', '{"api_key": "<api_key=sk>"}'),
        ('{ "a" : [ {"secret"\n:\n"s"} ] }', '{ "a" : [ {"secret"\n:\n"<secret=s>"} ] }'),
        ('at 5: {"pwd":"p"} and {"token":"t"} too', 'at 5: {"pwd":"<pwd=p>"} and {"token":"<token=t>"} too'),
        ('{"password":"a\\"b\\u0041"}', '{"password":"<password=a\\"bA>"}'),
        ('{"passcode": 12, "token": 12}', '{"passcode": "<passcode=12>", "token": 12}'),
        ('{"secrets": {"a": "x", "b": [1]}}', '{"secrets": {"a": "<secrets=x>", "b": ["<secrets=1>"]}}'),
        ('{"cookie": ["a", "b"]}', '{"cookie": ["<cookie=a>", "<cookie=b>"]}'),
        ('{"password": {"password": "x"}}', '{"password": {"password": "<password=x>"}}'),
        ('{"a": 1}\n{"password": "x"}\n', '{"a": 1}\n{"password": "<password=x>"}\n'),
        ('{"password": "cut of', '{"password": "<password=\\"cut of>"'),
        ("PATH=/bin\nAPI_KEY=sk-1\n", "PATH=/bin\nAPI_KEY=<API_KEY=sk-1>\n"),
        ("export DB_PASSWORD='a b'", "export DB_PASSWORD='<DB_PASSWORD=a b>'"),
        ('    12\tMY_TOKEN="x"', '    12\tMY_TOKEN="<MY_TOKEN=x>"'),
        *[(text, text) for text in UNCHANGED],
    ],
)
def test_a_value_with_a_secret_name_is_taken_out_of_text(text: str, expected: str) -> None:
    """JSON wherever it stands, with all that is around it left alone, and the output of `env`."""
    secrets = Secrets()
    assert redact_text(text, secrets, search_stems(secrets), shown) == expected


def test_words_of_an_agents_own_are_found_in_text() -> None:
    secrets = Secrets(words=("seat",), plain=("password",))
    text = '{"seat": "4a", "password": "x"}'
    expected = '{"seat": "<seat=4a>", "password": "x"}'
    assert redact_text(text, secrets, search_stems(secrets), shown) == expected


LONG = (
    *('"' * 300_000, '"a' * 150_000, '"password":"\\' * 25_000, '"password":{' * 25_000),
    *('"passwords":[' * 25_000, '"passwords":[1,' * 25_000, '"password":\n"' * 25_000),
    *('"passwords":[[[[' * 20_000, "A_KEY=x\n" * 40_000, "A" * 300_000 + "key=", "    1\t" * 50_000 + "key="),
    *('"password"' + " " * 300_000, '{"password":' * 900 + '"x"' + "}" * 900 + " " * 200_000),
)


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_no_text_takes_long_to_look_through(text: str) -> None:
    """A result may be of any making: each character is looked at a few times and no more."""
    secrets = Secrets()
    begun = time.process_time()
    redact_text(f"{text} key", secrets, search_stems(secrets), shown)
    assert time.process_time() - begun < 20


def test_only_a_value_that_is_no_word_and_no_number_is_looked_for() -> None:
    """Others turn up in any text; of two values the longer one is found first."""
    telling = ("hunter2", "sk-1234", "60371293", "correcthorsebatt")
    assert [value for value in telling if not is_searchable(value)] == []
    assert [value for value in ("secret", "production", "123456", "a1", "") if is_searchable(value)] == []
    assert mask("ab-12-cd ab-12", {"ab-12": "1", "ab-12-cd": "2"}) == "2 1"


@pytest.mark.parametrize(
    ("value", "searched", "echoed"),
    [
        ("ab-12c", True, False),
        ("ab-12", False, True),
        ("12345678", True, False),
        ("1234567", False, True),
        ("a" * 16, True, False),
        ("a" * 15, False, True),
        ("a-1", False, True),
        ("a1", False, False),
        ("", False, False),
    ],
)
def test_a_value_is_looked_for_anywhere_or_in_what_its_call_says_by_its_length(
    value: str,
    searched: bool,  # noqa: FBT001  # a row
    echoed: bool,  # noqa: FBT001  # a row
) -> None:
    assert (is_searchable(value), is_echoed(value)) == (searched, echoed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the code is 1234.", "the code is <a>."),
        ("1234 and 1234", "<a> and <a>"),
        ("51234 and 12345 and x1234_", "51234 and 12345 and x1234_"),
        ("1234 56", "<b>"),  # the longer one, and not a part of it
        ("a.c abc", "<c> abc"),
        (f"{STANDS} password", f"{STANDS} <d>"),
        ("nothing of it", "nothing of it"),
        ("", ""),
    ],
)
def test_a_short_value_is_hidden_where_it_is_a_word_of_its_own(text: str, expected: str) -> None:
    known = {"1234": "<a>", "1234 56": "<b>", "a.c": "<c>", "password": "<d>"}
    assert mask_words(text, known) == expected
    assert mask_words(text, {}) == text


def test_placeholders_are_found_wherever_they_stand() -> None:
    other = "[secret pin ffffffffffff]"
    value: Json = {
        "a": [STANDS, 1, None],
        "b": {"c": f"x {other}{STANDS}"},
        STANDS: "a name is none",
        "d": "[secret",
    }
    assert [found[0] for found in placeholders_in(value)] == [STANDS, other, STANDS]
    assert [found[1] for found in placeholders_in(STANDS)] == [DIGITS]


@pytest.mark.parametrize(("broken", "found"), [(15, True), (16, False)])
def test_of_text_that_only_looks_like_json_so_much_is_tried(
    broken: int,
    found: bool,  # noqa: FBT001  # a row
) -> None:
    secrets = Secrets()
    before = '"passwords": [x\n' * broken
    text = f'{before}"passwords": ["s"], "password": "t"'
    value = '"<passwords=s>"' if found else '"s"'
    expected = f'{before}"passwords": [{value}], "password": "<password=t>"'
    assert redact_text(text, secrets, search_stems(secrets), shown) == expected


def test_the_stems_of_an_agents_own_words_are_looked_for_too() -> None:
    assert search_stems(Secrets()) == STEMS
    assert search_stems(Secrets(words=("account_number", "pin"))) == (*STEMS, "account", "pin")


async def test_a_vault_in_memory_keeps_as_much_as_it_may_and_the_newest_in_any_case() -> None:
    vault = MemoryVault(most=2 * ENTRY_COST + 4)
    await vault.keep("s", "a", "12")
    await vault.keep("s", "b", "34")
    assert [await vault.find("s", name) for name in "ab"] == ["12", "34"]
    # One that is kept again counts once, and as the newest.
    await vault.keep("s", "a", "56")
    await vault.keep("s", "c", "78")
    assert [await vault.find("s", name) for name in "abc"] == ["56", None, "78"]
    await vault.keep("s", "c", "789")
    assert [await vault.find("s", name) for name in "abc"] == [None, None, "789"]


async def test_a_vault_in_memory_keeps_values_by_session_and_forgets_the_oldest() -> None:
    vault = MemoryVault(most=3 * ENTRY_COST + 10)
    for session, name, value in (
        ("s", "a", "1234"),
        ("t", "a", "5678"),
        ("s", "a", "12345"),
        ("s", "b", "9"),
    ):
        await vault.keep(session, name, value)
    found = [await vault.find(session, name) for session, name in ("sa", "ta", "sb", "ua")]
    assert found == ["12345", "5678", "9", None]
    await vault.keep("s", "c", "0")
    assert [await vault.find("t", "a"), await vault.find("s", "a")] == [None, "12345"]
    assert repr(vault) == "<MemoryVault of 3 values>"


def test_a_vault_is_taken_as_it_is_where_it_can_keep_and_find() -> None:
    vault = MemoryVault()
    assert checked_vault(vault) is vault

    @attrs.frozen
    class Half:
        """What can find, and has something else that is called as keeping is."""

        keep: int = 5

        async def find(self, session: str, name: str) -> str | None:
            return session + name

    half: Any = Half()
    with pytest.raises(ArgumentError, match="a vault has the methods keep and find, a Half has not"):
        checked_vault(half)


def test_a_vault_in_memory_knows_the_latest_sessions_that_were_at_work_here() -> None:
    vault = MemoryVault()
    names = [f"s{number}" for number in range(1_000)]
    for name in names:
        vault.mark_local(name)
    assert all(map(vault.is_local, names))
    vault.mark_local("s0")  # again at work
    vault.mark_local("new")
    assert [vault.is_local(name) for name in ("s0", "s1", "s2", "new")] == [True, False, True, True]
