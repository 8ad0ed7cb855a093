"""Secrets that were found: what stands in their place, where they come back and how long they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.secrets import Json, Secrets, placeholder
from turnwheel.performers.secrets import (
    ENTRY_COST,
    MAX_JSON_TRIES,
    MAX_LOCAL_SESSIONS,
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

ONE, TWO = "0123456789ab", "ba9876543210"
FIRST, SECOND = placeholder("password", ONE), placeholder("pin", TWO)
PLAIN = Secrets()


def shown(name: str, value: Json) -> str:
    return f"<{name}: {value}>"


# Where values are kept


HALF = type("Half", (), {"keep": print})()
ODD = type("Odd", (), {"keep": 1, "find": 2})()


@pytest.mark.parametrize("vault", [None, {}, HALF, ODD], ids=lambda vault: type(vault).__name__)
def test_what_cannot_keep_and_find_is_no_vault(vault: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        checked_vault(vault)
    kind = type(vault).__name__
    assert (
        str(caught.value) == f"a vault has the methods keep and find, a {kind} has not; leave it out for one"
    )


def test_what_can_is_one() -> None:
    vault = MemoryVault()
    assert checked_vault(vault) is vault


async def test_a_vault_keeps_values_by_their_names_and_sessions_and_shows_none() -> None:
    vault = MemoryVault()
    await vault.keep("s", "a", "one")
    await vault.keep("s", "b", "two")
    await vault.keep("t", "a", "three")
    assert [await vault.find(*key) for key in (("s", "a"), ("s", "b"), ("t", "a"), ("t", "b"))] == [
        "one",
        "two",
        "three",
        None,
    ]
    assert repr(vault) == "<MemoryVault of 3 values>"


async def test_the_oldest_values_go_where_there_is_no_room() -> None:
    vault = MemoryVault(2 * (ENTRY_COST + 10))

    async def there() -> str:
        return "".join([name for name in "abcd" if await vault.find("s", name)])

    for name in "ab":
        await vault.keep("s", name, "x" * 10)
    assert await there() == "ab"
    await vault.keep("s", "c", "x")
    assert await there() == "bc"
    await vault.keep("s", "b", "x" * 19)  # in the place of the one before, so that it is the latest
    assert await there() == "bc"
    await vault.keep("s", "d", "x")
    assert await there() == "bd"
    await vault.keep("s", "a", "x" * 1_000)
    assert await there() == ""
    await vault.keep("s", "a", "x")
    await vault.keep("s", "b", "x")
    assert await there() == "ab"


def test_a_session_that_was_at_work_here_is_known_until_many_were_since() -> None:
    vault = MemoryVault()
    for number in range(MAX_LOCAL_SESSIONS):
        vault.mark_local(str(number))
    vault.mark_local("0")
    assert vault.is_local("0")
    assert vault.is_local("1")
    vault.mark_local("new")
    assert [vault.is_local(name) for name in ("0", "1", "2", "new", "other")] == [
        True,
        False,
        True,
        True,
        False,
    ]


# Arguments


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("pin", True),  # it is among the names
        ("PIN2", True),  # a model may spell it as it likes
        ("other", False),
        ("password", False),  # it is there, and none of the names
        ("api_key", True),  # made up, and judged by its words
    ],
)
def test_an_argument_is_secret_by_the_names_of_its_tool_or_by_its_words(name: str, *, secret: bool) -> None:
    assert secret_test(["pin"], PLAIN, frozenset({"pin", "password", "other"}))(name) is secret


def test_where_a_tool_takes_any_argument_each_is_judged_by_its_words() -> None:
    is_named = secret_test(["*", "pin"], PLAIN, frozenset({"password", "other", "pin"}))
    assert [is_named(name) for name in ("password", "other", "pin")] == [True, False, True]
    assert not secret_test(["pin"], Secrets(redact=False))("password")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"pin": "abc", "a": "abc"}, {"pin": "<pin: abc>", "a": "abc"}),
        ({"pin": 5, "a": 5}, {"pin": "<pin: 5>", "a": 5}),
        ({"pin": 0.5}, {"pin": "<pin: 0.5>"}),
        ({"pin": 0}, {"pin": "<pin: 0>"}),
        # An empty text and a flag are no secrets, and nothing is none.
        ({"pin": ["", True, False, None, "x"]}, {"pin": ["", True, False, None, "<pin: x>"]}),
        ({"pin": {"a": "x", "b": ["y"]}}, {"pin": {"a": "<pin: x>", "b": ["<pin: y>"]}}),
        ({"a": [{"pin": "x"}, "y"]}, {"a": [{"pin": "<pin: x>"}, "y"]}),
        ({"pin": FIRST}, {"pin": FIRST}),
        ({"pin": f"{FIRST} "}, {"pin": f"<pin: {FIRST} >"}),
    ],
)
def test_what_stands_below_the_name_of_a_secret_is_replaced(value: Json, found: Json) -> None:
    assert redact(value, lambda name: name == "pin", shown) == found


# Placeholders


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        (FIRST, [ONE]),
        (f"a {FIRST} b {SECOND}{FIRST}", [ONE, TWO, ONE]),
        ({FIRST: [SECOND, {"a": FIRST}, 5, None]}, [TWO, ONE]),
        ("[secret ", []),
        (5, []),
        ([], []),
    ],
)
def test_placeholders_are_found_wherever_they_stand(value: Json, digits: list[str]) -> None:
    assert [found[1] for found in placeholders_in(value)] == digits


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        (FIRST, "hush"),
        (SECOND, 42),
        (f"{FIRST}:{SECOND}", "hush:42"),
        ({"a": [FIRST, {FIRST: SECOND}], "b": 5}, {"a": ["hush", {FIRST: 42}], "b": 5}),
        (placeholder("pin", "f" * 12), placeholder("pin", "f" * 12)),
        (f"{placeholder('pin', 'f' * 12)} {FIRST}", f"{placeholder('pin', 'f' * 12)} hush"),
        ("plain", "plain"),
    ],
)
def test_values_come_back_for_placeholders_that_are_known(value: Json, filled: Json) -> None:
    assert fill_in(value, {ONE: "hush", TWO: 42}) == filled


# Texts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("password is hush", "password is hush"),
        ('{"password": "hush"}', '{"password": "<password: hush>"}'),
        (
            '{"password": "hush", "a": 1, "pwd": "x"}',
            '{"password": "<password: hush>", "a": 1, "pwd": "<pwd: x>"}',
        ),
        ('say {"a": {"password" : 5}} ok', 'say {"a": {"password" : "<password: 5>"}} ok'),
        ('{"password": ["a", "ü"]}', '{"password": ["<password: a>", "<password: ü>"]}'),
        ('{"password": {"type": "string"}}', '{"password": {"type": "string"}}'),
        ('{"Credentials": {"a": "x"}}', '{"Credentials": {"a": "<Credentials: x>"}}'),
        ('{"credentials": {"a": "x"}}', '{"credentials": {"a": "<credentials: x>"}}'),
        ('{"token": 5, "token": "x"}', '{"token": 5, "token": "<token: x>"}'),
        ('{"password": "cut\nnext', '{"password": "<password: \\"cut>"\nnext'),
        ('{"password": no, "pwd": "x"}', '{"password": no, "pwd": "<pwd: x>"}'),
        ("API_KEY=hush", "API_KEY=<API_KEY: hush>"),
        ("  12\texport API_KEY='a b'", "  12\texport API_KEY='<API_KEY: a b>'"),
        ('3:API_KEY="a b" # why', '3:API_KEY="<API_KEY: a b>" # why'),
        ("HOME=x\nAPI_KEY=y\nA=API_KEY=z", "HOME=x\nAPI_KEY=<API_KEY: y>\nA=API_KEY=z"),
        ("api_key=hush", "api_key=hush"),
        ("API_KEY=$(cat x)", "API_KEY=$(cat x)"),
        (f"API_KEY={FIRST}", f"API_KEY={FIRST}"),
        (f'{{"password": "{FIRST}"}}', f'{{"password": "{FIRST}"}}'),
        ('{"password": "a"}\nAPI_KEY=b', '{"password": "<password: a>"}\nAPI_KEY=<API_KEY: b>'),
    ],
)
def test_values_with_the_name_of_a_secret_are_replaced_in_a_text(text: str, found: str) -> None:
    assert redact_text(text, PLAIN, search_stems(PLAIN), shown) == found


def test_words_of_a_hosts_own_are_looked_for_in_texts() -> None:
    own = Secrets(words=("pin", "account_number", "_"))
    assert search_stems(own)[-2:] == ("pin", "account")
    text = '{"pin": 5, "accountNumber": "x"}'
    assert redact_text(text, own, search_stems(own), shown) == (
        '{"pin": "<pin: 5>", "accountNumber": "<accountNumber: x>"}'
    )
    assert redact_text(text, PLAIN, search_stems(PLAIN), shown) == text


def test_lists_that_are_no_json_are_tried_a_few_times() -> None:
    broken, whole = '"credentials": [x, ', '"credentials": ["y"]'
    few, many = broken * (MAX_JSON_TRIES - 1) + whole, broken * MAX_JSON_TRIES + whole
    assert redact_text(few, PLAIN, search_stems(PLAIN), shown).endswith('["<credentials: y>"]')
    assert redact_text(many, PLAIN, search_stems(PLAIN), shown) == many
    text = f'{many} "password": "z"'
    assert redact_text(text, PLAIN, search_stems(PLAIN), shown) == f'{many} "password": "<password: z>"'


# Values that are known


@pytest.mark.parametrize(
    ("value", "searched", "echoed"),
    [
        ("ab", False, False),
        ("abc", False, True),
        ("a1", False, False),
        ("a1b2c", False, True),
        ("a1b2c3", True, False),
        ("1234567", False, True),
        ("12345678", True, False),
        ("a" * 15, False, True),
        ("a" * 16, True, False),
    ],
)
def test_a_value_is_looked_for_where_it_is_no_ordinary_word(
    value: str, *, searched: bool, echoed: bool
) -> None:
    assert (is_searchable(value), is_echoed(value)) == (searched, echoed)


def test_known_values_are_masked_the_longest_first() -> None:
    known = {"abc": "<1>", "abcdef": "<2>"}
    assert mask("abcdef abc xabcx", known) == "<2> <1> x<1>x"
    assert mask("plain", known) == "plain"
    assert mask("abcd", {"bc": "<1>", "abcd": "<2>"}) == "<2>"


def test_short_values_are_masked_as_words_and_in_no_placeholder() -> None:
    known = {"abc": "<1>", "abc-d": "<2>", "pin": "<3>", "a.c": "<4>"}
    assert mask_words("abc abc-d xabc abcx (abc)", known) == "<1> <2> xabc abcx (<1>)"
    assert mask_words(f"pin {SECOND}", known) == f"<3> {SECOND}"
    assert mask_words("plain", known) == "plain"
    assert mask_words("abc", {"abc": "<1>"}) == "<1>"
