"""What a redactor takes out of each thing, and what it puts back: one by one, without a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from turnwheel import Agent, tool
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    HookAnswered,
    ModelFinished,
    ToolFinished,
)
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.hooks import HookAnswer, HookSaid
from turnwheel.effects.messages import Binary, StopReason
from turnwheel.effects.requests import AskApproval
from turnwheel.effects.secrets import Secrets
from turnwheel.effects.usage import Usage
from turnwheel.engine.session import redactor as module
from turnwheel.engine.session.redactor import MAX_MASKED, Redactor, SecretNames, UnknownSecrets
from turnwheel.performers.secrets import MemoryVault, Vault

PASSWORD = "correct-horse-7"  # noqa: S105  # made up
OTHER = "battery-staple-8"


@tool
def log_in(user: str, password: str = "") -> str:
    """Log in."""
    return user + password


@tool
def look(at: str = "") -> str:
    """Look."""
    return at


SPECS = Agent(model="wire:m", base_url="http://localhost", tools=[log_in, look]).config.tools
PLAIN_SPECS = tuple([spec for spec in SPECS if spec.name == "look"])


class Shelf:
    """A vault that says what it was *asked* for, and *fails* where it is told to."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str]] = []
        self.fails = False

    async def keep(self, session: str, name: str, value: str) -> None:
        self._fail()
        self.kept[session, name] = value

    async def find(self, session: str, name: str) -> str | None:
        self.asked.append((session, name))
        self._fail()
        return self.kept.get((session, name))

    def _fail(self) -> None:
        if self.fails:
            msg = f"the vault is away, and with it {PASSWORD}"
            raise OSError(msg)


ON, OFF = Secrets(), Secrets(redact=False)


def redactor_of(vault: Vault | None = None, session: str = "s", hidden: Secrets = ON) -> Redactor:
    return Redactor(session, Shelf() if vault is None else vault, SecretNames(hidden, SPECS, {}))


def given(password: object = PASSWORD, **other: object) -> str:
    return json.dumps({"user": "ann", "password": password, **other})


# Which are secret


@pytest.mark.parametrize(
    ("specs", "hidden", "in_arguments", "used"),
    [
        (SPECS, Secrets(), True, True),
        (PLAIN_SPECS, Secrets(), False, True),
        (PLAIN_SPECS, OFF, False, False),
        (SPECS, OFF, True, True),
    ],
)
def test_an_agent_says_whether_anything_is_secret(
    specs: Any, hidden: Secrets, in_arguments: object, used: object
) -> None:
    names = SecretNames(hidden, specs, {})
    assert (names.in_arguments, names.used) == (in_arguments, used)


def test_a_tool_that_is_not_known_may_have_any_secret() -> None:
    redactor = redactor_of()
    assert redactor.passes("look")
    assert not redactor.passes("log_in")
    assert not redactor.passes("made up")


# Arguments


async def test_only_the_secrets_of_arguments_are_replaced_and_are_put_back() -> None:
    shelf = Shelf()
    redactor = redactor_of(shelf)
    text = await redactor.arguments("log_in", given())
    assert PASSWORD not in text
    assert json.loads(text)["user"] == "ann"
    assert [*shelf.kept.values()] == [json.dumps(PASSWORD)]
    assert redactor.unsaved == {}
    assert json.loads(await redactor.fill(text)) == json.loads(given())
    # The value is known here: the vault need not be asked.
    assert shelf.asked == []
    # A process that comes later asks it, once.
    later = redactor_of(shelf)
    for _ in range(2):
        assert json.loads(await later.fill(text)) == json.loads(given())
    assert len(shelf.asked) == 1
    assert later.output("look", f"it is {PASSWORD}") != f"it is {PASSWORD}"


@pytest.mark.parametrize("text", ["", "  ", '{"user": "ann"}', '{"user":"ann"}'])
async def test_arguments_without_a_secret_stay_as_the_model_wrote_them(text: str) -> None:
    shelf = Shelf()
    assert await redactor_of(shelf).arguments("log_in", text) == text
    assert shelf.kept == {}


async def test_arguments_of_a_tool_without_secrets_stay_as_they_are() -> None:
    assert await redactor_of().arguments("look", "no json") == "no json"
    assert await redactor_of(hidden=OFF).arguments("log_in", given()) == given()


async def test_arguments_that_are_no_object_become_one_placeholder_once() -> None:
    redactor = redactor_of()
    whole = await redactor.arguments("log_in", f'{{"password": "{PASSWORD}')
    assert PASSWORD not in whole
    assert await redactor.arguments("log_in", whole) == whole


async def test_a_placeholder_without_a_value_is_told_by_its_name_and_not_filled() -> None:
    text = await redactor_of().arguments("log_in", given())
    with pytest.raises(UnknownSecrets) as gone:
        await redactor_of().fill(text)
    assert gone.value.placeholders == (json.loads(text)["password"],)
    for text in (given(), '{"user":"ann"}', "no json"):
        assert await redactor_of().fill(text) == text


async def test_a_vault_that_fails_is_a_line_in_the_log_without_the_secret() -> None:
    shelf = Shelf()
    redactor, shelf.fails = redactor_of(shelf), True
    with capture_logs() as logged:
        text = await redactor.arguments("log_in", given())
        with pytest.raises(UnknownSecrets):
            await redactor_of(shelf).fill(text)
    assert [(line["event"], line["reason"]) for line in logged] == [
        ("a secret was not kept", "OSError"),
        ("a secret was not found", "OSError"),
    ]
    # It is known here all the same.
    assert json.loads(await redactor.fill(text)) == json.loads(given())


async def test_a_copy_looks_in_its_own_session_first_and_then_in_its_origins_each_once() -> None:
    shelf = Shelf()
    text = await redactor_of(shelf, "first").arguments("log_in", given())
    copy = redactor_of(shelf, "copy")
    copy.add_origins(["second", "first"])
    copy.add_origins(["first", "copy"])
    with capture_logs() as logged:
        assert json.loads(await copy.fill(text)) == json.loads(given())
        assert [session for session, _ in shelf.asked] == ["copy", "second", "first"]
        lost = await redactor_of(session="lost").arguments("log_in", given())
        shelf.asked.clear()
        with pytest.raises(UnknownSecrets):
            await copy.fill(lost)
    assert [session for session, _ in shelf.asked] == ["copy", "second", "first"]
    assert logged == []


async def test_equal_secrets_of_two_sessions_have_different_placeholders() -> None:
    one, again = [await redactor_of().arguments("log_in", given()) for _ in range(2)]
    assert one == again
    assert await redactor_of(session="other").arguments("log_in", given()) != one
    assert await redactor_of().arguments("log_in", given(OTHER)) != one


async def test_a_secret_that_is_known_is_not_put_into_the_vault_again() -> None:
    shelf = Shelf()
    redactor = redactor_of(shelf)
    await redactor.arguments("log_in", given())
    shelf.kept.clear()
    text = await redactor.arguments("log_in", given(other="gr\u00fcn"))
    assert shelf.kept == {}
    # All else is written as a model writes it.
    assert "gr\u00fcn" in text


# Texts


async def test_where_nothing_is_a_secret_any_more_a_known_value_is_none_either() -> None:
    shelf = Shelf()
    before = redactor_of(shelf)
    text, short = [await before.arguments("log_in", given(value)) for value in (PASSWORD, "a-7")]
    later = redactor_of(shelf, hidden=OFF)
    assert json.loads(await later.fill(text)) == json.loads(given())
    await later.fill(short)
    assert later.echoes(short) == {}
    assert later.output("look", PASSWORD) == PASSWORD
    files = (Binary(media_type="text/plain", data=PASSWORD.encode(), name="all of it"),)
    answer = ToolFinished(request="r", content="ok", files=files, at=0.0)
    assert await later.redacted(answer, "look") == answer


async def test_a_secret_that_a_text_names_is_kept_unless_it_is_plain_for_its_tool() -> None:
    shelf, text = Shelf(), f'{{"password": "{PASSWORD}"}}'
    found = await redactor_of(shelf).redacted(text, "look")
    assert PASSWORD not in found
    assert [*shelf.kept.values()] == [json.dumps(PASSWORD)]
    hidden = Secrets(plain=("api_key",))
    names = SecretNames(hidden, SPECS, {"look": ("password",)})
    redactor = Redactor("s", Shelf(), names)
    assert await redactor.redacted(text, "look") == text
    assert await redactor.redacted(f"{{'api_key': '{OTHER}'}}", "look") == f"{{'api_key': '{OTHER}'}}"
    assert PASSWORD not in await redactor.redacted(text, "log_in")


async def test_a_known_secret_is_masked_in_any_text_and_as_json_writes_it() -> None:
    redactor, secret = redactor_of(), 'gr\u00fcn "7" und blau'
    stands = json.loads(await redactor.arguments("log_in", given(secret)))["password"]
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert redactor.output("look", f"<{text}>") == f"<{stands}>"
    assert redactor_of(hidden=OFF).output("look", secret) == secret


@pytest.mark.parametrize(("length", "masked"), [(MAX_MASKED - 2, True), (MAX_MASKED - 1, False)])
async def test_a_value_that_is_very_long_is_in_the_vault_only(length: int, masked: object) -> None:
    shelf, secret = Shelf(), "x7" * (length // 2) + "y" * (length % 2)
    redactor = redactor_of(shelf)
    text = await redactor.arguments("log_in", given(secret))
    assert (redactor.output("look", secret) != secret) is masked
    assert json.loads(await redactor.fill(text))["password"] == secret
    assert len(shelf.asked) == (not masked)


async def test_of_very_many_values_the_oldest_are_no_longer_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MASKS", 2)
    monkeypatch.setattr(module, "MAX_REMEMBERED", 2)
    shelf = Shelf()
    redactor = redactor_of(shelf)
    values = [f"password-number-{number}" for number in range(3)]
    texts = [await redactor.arguments("log_in", given(value)) for value in values]
    assert [redactor.output("look", value) == value for value in values] == [True, False, False]
    for text, value in zip(texts, values, strict=True):
        assert json.loads(await redactor.fill(text))["password"] == value
    assert len(shelf.asked) > 0


async def test_a_short_secret_is_masked_in_what_its_own_call_says_and_nowhere_else() -> None:
    redactor = redactor_of()
    text = await redactor.arguments("log_in", given("a-7"))
    own = redactor.echoes(text)
    stands = json.loads(text)["password"]
    assert own == {"a-7": stands}
    assert redactor.output("log_in", "a-7 is wrong", own) == f"{stands} is wrong"
    assert redactor.output("log_in", "a-7 is wrong") == "a-7 is wrong"
    number = await redactor.arguments("log_in", given(4711))
    assert redactor.echoes(number) == {"4711": json.loads(number)["password"]}
    # One that is long enough is known everywhere.
    assert redactor.echoes(await redactor.arguments("log_in", given())) == {}
    assert redactor_of(hidden=OFF).echoes(text) == {}
    assert redactor_of().echoes(text) == {}


async def test_a_file_that_holds_a_known_secret_is_withheld() -> None:
    redactor = redactor_of()
    stands = json.loads(await redactor.arguments("log_in", given()))["password"]
    files = (
        Binary(media_type="text/plain", data=f"<{PASSWORD}>".encode(), name="bad"),
        Binary(media_type="text/plain", data=b"fine", name=f"of {PASSWORD}"),
        Binary(media_type="text/plain", data=b"fine", name="good"),
    )
    answer = ToolFinished(request="r", content=f"with {PASSWORD}", files=files, at=0.0)
    found = await redactor.redacted(answer, "look")
    assert [file.name for file in found.files] == [f"of {stands}", "good"]
    assert found.content == f"with {stands}\n[file 'bad' is withheld: it holds {stands}]"
    assert await redactor_of(hidden=OFF).redacted(answer, "look") == answer


# Each kind of thing


KINDS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "edited arguments": (Approve(arguments=given()), lambda one: one.arguments),
    "an approval": (
        ApprovalGiven(request="q", decision=Approve(arguments=given()), at=0.0),
        lambda one: one.decision.arguments,
    ),
    "a hook's": (HookAnswer(arguments=given()), lambda one: one.arguments),
    "what hooks said": (
        HookAnswered(request="h", said=(HookSaid(name="g", answer=HookAnswer(arguments=given())),), at=0.0),
        lambda one: one.said[0].answer.arguments,
    ),
    "a call": (CallPiece(index=0, wire_id="c", name="log_in", arguments=given()), lambda one: one.arguments),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_secret_is_taken_out_wherever_arguments_are(kind: str) -> None:
    what, arguments = KINDS[kind]
    shelf = Shelf()
    redactor = redactor_of(shelf)
    found = arguments(await redactor.redacted(what, "log_in"))
    assert PASSWORD not in found
    assert json.loads(found)["user"] == "ann"
    assert [*shelf.kept.values()] == [json.dumps(PASSWORD)]
    assert await redactor_of(hidden=OFF).redacted(what, "log_in") == what


async def test_a_secret_that_an_answer_has_in_fragments_is_taken_out_whole() -> None:
    pieces = (
        CallPiece(index=0, wire_id="c", name="log_in", arguments=given()[:30]),
        CallPiece(index=0, arguments=given()[30:]),
    )
    said = (TextPiece(text="hi"), *pieces)
    answer = ModelFinished(request="r", pieces=said, stop=StopReason.TOOL_USE, usage=Usage(), at=0.0)
    found = await redactor_of().redacted(answer)
    assert len(found.pieces) == 2
    assert PASSWORD not in str(found)


async def test_a_granted_rule_names_the_placeholder_of_its_secret_and_no_other_glob() -> None:
    redactor = redactor_of()
    stands = json.loads(await redactor.arguments("log_in", given()))["password"]
    globbed = stands.replace("[", "[[]")
    rule = ApproveAlways(where=(("password", PASSWORD), ("user", "ann*")))
    found = await redactor.redacted(rule, "log_in")
    assert found.where == (("password", globbed), ("user", "ann*"))
    # What is one already stays, and so does any value at all.
    assert await redactor.redacted(found, "log_in") == found
    any_ = ApproveAlways(where=(("password", "*"),))
    assert await redactor.redacted(any_, "log_in") == any_
    assert await redactor_of(hidden=OFF).redacted(rule, "log_in") == rule


# Decisions


def question(request: str, tool: str) -> AskApproval:
    return AskApproval(id=request, call="c", tool=tool, arguments="{}")


@pytest.mark.parametrize("persistent", [True, False])
async def test_a_decision_with_a_secret_needs_a_vault_that_the_owner_can_look_into(
    persistent: object,
) -> None:
    vault: Vault = Shelf() if persistent else MemoryVault()
    redactor, questions = redactor_of(vault), [question("other", "look"), question("q", "log_in")]
    plain = ApprovalGiven(request="q", decision=Approve(), at=0.0)
    assert await redactor.answer(plain, questions) == plain
    secret = ApprovalGiven(request="q", decision=Approve(arguments=given()), at=0.0)
    if not persistent:
        with pytest.raises(ConfigError, match="does not run in this process"):
            await redactor.answer(secret, questions)
    # One that lasts serves any process.
    redactor.mark_running()
    found = await redactor.answer(secret, questions)
    assert isinstance(found.decision, Approve)
    assert PASSWORD not in found.decision.arguments
    assert json.loads(found.decision.arguments)["user"] == "ann"


async def test_a_decision_is_redacted_as_its_own_question_asks() -> None:
    questions = [question("other", "log_in"), question("q", "look")]
    named = ApprovalGiven(request="q", decision=Approve(arguments='{"at": "x"}'), at=0.0)
    assert await redactor_of().answer(named, questions) == named
    odd = ApprovalGiven(request="q", decision=Approve(arguments="no json"), at=0.0)
    assert await redactor_of().answer(odd, questions) == odd
    # Without its question the strictest names count.
    assert await redactor_of().answer(odd, questions[:1]) != odd
