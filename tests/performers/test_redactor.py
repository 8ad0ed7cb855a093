"""What a redactor takes out of each thing, and what it puts back: one by one, without a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from turnwheel import Agent, tool
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Failure,
    HookAnswered,
    ModelFailed,
    ModelFinished,
    ToolFinished,
    ToolProgressed,
)
from turnwheel.effects.history import CallPiece, History, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid
from turnwheel.effects.messages import Binary, Outcome, StopReason
from turnwheel.effects.notices import RequestDelayed
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Conversation,
    FireHook,
    RunTool,
    SetTimer,
)
from turnwheel.effects.secrets import Secrets
from turnwheel.effects.usage import Usage
from turnwheel.performers import redactor as module
from turnwheel.performers.base import PerformContext, noop
from turnwheel.performers.redactor import (
    MAX_MASKED,
    Redactor,
    SecretNames,
    UnknownSecrets,
    ask,
    call_model,
    redacting,
    run_tool,
)
from turnwheel.performers.secrets import MemoryVault, Vault
from turnwheel.testing.clocks import AutoClock

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
    stands = json.loads(text)["password"]
    assert gone.value.placeholders == (stands,)
    assert gone.value.args == ((stands,),)
    for text in (given(), '{"user":"ann"}', "no json"):
        assert await redactor_of().fill(text) == text


async def test_a_vault_that_fails_is_a_line_in_the_log_without_the_secret() -> None:
    shelf = Shelf()
    redactor, shelf.fails = redactor_of(shelf), True
    with capture_logs() as logged:
        text = await redactor.arguments("log_in", given())
        with pytest.raises(UnknownSecrets):
            await redactor_of(shelf).fill(text)
    assert [(line["event"], line["error"]) for line in logged] == [
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


async def test_a_secret_that_is_no_text_is_masked_as_json_writes_it() -> None:
    redactor, secret = redactor_of(), 4711_0815_4711
    stands = json.loads(await redactor.arguments("log_in", given(secret)))["password"]
    assert redactor.output("look", f"<{secret}>") == f"<{stands}>"
    part = str(secret)[1:-1]
    assert redactor.output("look", part) == part


async def test_a_name_that_its_tool_declares_as_no_secret_is_none_there_whatever_it_is_called() -> None:
    @tool
    def enter(password: str, token: str) -> str:
        """Enter."""
        return password + token

    (spec,) = Agent(model="wire:m", base_url="http://localhost", tools=[enter]).config.tools
    names = SecretNames(ON, [attrs.evolve(spec, secrets=("password",))], {})
    text = json.dumps({"password": PASSWORD, "token": OTHER, "api_key": OTHER})
    found = json.loads(await Redactor("s", Shelf(), names).arguments("enter", text))
    assert found["token"] == OTHER
    assert OTHER != found["api_key"] != found["password"] != PASSWORD


async def test_a_placeholder_is_known_however_a_model_writes_its_name() -> None:
    names = SecretNames(ON, [attrs.evolve(SPECS[0], secrets=("schl\u00fcssel",))], {})
    redactor = Redactor("s", Shelf(), names)
    text = await redactor.arguments("log_in", json.dumps({"schl\u00fcssel": "a-7"}))
    stands = json.loads(text)["schl\u00fcssel"]
    escaped = json.dumps(json.loads(text))
    assert escaped != text
    assert redactor.echoes(text) == redactor.echoes(escaped) == {"a-7": stands}
    assert json.loads(await redactor.fill(escaped)) == {"schl\u00fcssel": "a-7"}


async def test_half_a_character_in_a_secret_or_in_the_name_of_a_session_does_no_harm() -> None:
    redactor, secret = redactor_of(session="s\ud83d"), "\ud83dlong-secret-77"
    stands = json.loads(await redactor.arguments("log_in", given(secret)))["password"]
    data = secret.encode(errors="surrogatepass")
    files = [Binary(media_type="text/plain", data=each, name="f") for each in (data, b"fine")]
    answer = ToolFinished(request="r", content="", files=tuple(files), at=0.0)
    found = await redactor.redacted(answer, "look")
    assert (found.content, len(found.files)) == (f"[file 'f' is withheld: it holds {stands}]", 1)


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
    for number, asked in ((2, 0), (1, 0), (0, 1), (2, 1), (1, 2)):
        assert json.loads(await redactor.fill(texts[number]))["password"] == values[number]
        assert len(shelf.asked) == asked


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


# Around performers


@pytest.mark.parametrize(
    ("specs", "hidden", "wrapped"),
    [
        (SPECS, ON, {CallModel, FireHook, AskApproval, RunTool}),
        (PLAIN_SPECS, ON, {RunTool}),
        (PLAIN_SPECS, OFF, {RunTool}),
    ],
)
def test_an_agent_without_secret_arguments_pays_for_its_tools_only(
    specs: Any, hidden: Secrets, wrapped: set[type]
) -> None:
    async def perform(*_: object) -> None:
        raise AssertionError

    performers: dict[type, Any] = dict.fromkeys(
        [CallModel, FireHook, AskApproval, RunTool, SetTimer], perform
    )
    redactor = Redactor("s", Shelf(), SecretNames(hidden, specs, {}))
    made = redacting(performers, redactor)
    assert {kind for kind in made if made[kind] is not perform} == wrapped
    assert {*made} == {*performers}
    assert {*performers.values()} == {perform}
    assert redacting({SetTimer: perform}, redactor) == {SetTimer: perform}


def scene_of(emit: Callable[[Any], None]) -> PerformContext:
    settings = Config(model=ModelSpec(name="m"), tools=SPECS)
    return PerformContext(
        session="s", run="r", config=settings, history=History.of(), clock=AutoClock(), emit=emit
    )


ASKED = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=0))


async def test_a_model_that_fails_says_so_and_a_delay_is_told() -> None:
    heard: list[Any] = []
    delayed = RequestDelayed(request="r-1", due=9.0, reason="too many", at=0.0)
    failed = ModelFailed(request="r-1", failure=Failure.OVERLOADED, message="later", at=0.0)

    async def model(_: CallModel, scene: PerformContext) -> ModelFailed:
        scene.emit(delayed)
        return failed

    assert await call_model(model, redactor_of(), ASKED, scene_of(heard.append)) is failed
    assert heard == [delayed]


async def test_an_agent_that_redacts_nothing_only_fills_in_earlier_placeholders() -> None:
    shelf, ran = Shelf(), list[str]()
    text = await redactor_of(shelf).arguments("log_in", given())
    answer = ToolFinished(request="r-1", content="ok", at=0.0)

    async def perform(request: RunTool, _: PerformContext) -> ToolFinished:
        ran.append(request.arguments)
        return answer

    later = Redactor("s", shelf, SecretNames(OFF, PLAIN_SPECS, {}))
    run = redacting({RunTool: perform}, later)[RunTool]
    for arguments in (given(), text):
        request = RunTool(id="r-1", call="r-0", tool="log_in", arguments=arguments)
        work: Any = run(request, scene_of(noop))
        # The tool's own work, with nothing around it, where nothing is to be filled in.
        assert (work.cr_code is perform.__code__) is (arguments != text)
        assert await work is answer
    assert [json.loads(arguments) for arguments in ran] == [json.loads(given())] * 2


def calling(tool: str, arguments: str) -> RunTool:
    return RunTool(id="r-1", call="r-0", tool=tool, arguments=arguments)


@pytest.mark.parametrize("silent", [True, False])
async def test_what_a_tool_tells_while_it_works_has_no_secret_unless_it_never_tells_anything(
    *, silent: bool
) -> None:
    redactor, heard = redactor_of(), list[Any]()
    text = await redactor.arguments("log_in", given())
    stands = json.loads(text)["password"]
    delayed = RequestDelayed(request="r-1", due=9.0, reason="too many", at=0.0)

    async def perform(request: RunTool, scene: PerformContext) -> ToolFinished:
        scene.emit(ToolProgressed(request="r-1", text=f"with {PASSWORD}", at=0.0))
        scene.emit(delayed)
        return ToolFinished(request="r-1", content=request.arguments, at=0.0)

    names = frozenset({"log_in"} if silent else ())
    found = await run_tool(perform, redactor, names, calling("log_in", text), scene_of(heard.append))
    assert [one.text for one in heard[:1]] == [f"with {PASSWORD if silent else stands}"]
    assert heard[1:] == [delayed]
    assert isinstance(found, ToolFinished)
    assert json.loads(found.content) == json.loads(text)


@pytest.mark.parametrize("answer", [None, ToolFinished(request="r-1", content="fine", at=0.0)])
async def test_an_answer_of_a_tool_that_has_no_secret_goes_on_as_it_is(answer: ToolFinished | None) -> None:
    async def perform(*_: object) -> ToolFinished | None:
        return answer

    for tool_ in ("look", "unknown"):
        found = await run_tool(perform, redactor_of(), frozenset(), calling(tool_, "{}"), scene_of(noop))
        assert found is answer


async def test_an_error_of_a_tool_is_raised_unless_it_quotes_a_secret() -> None:
    redactor = redactor_of()
    text = await redactor.arguments("log_in", given())
    errors = [ZeroDivisionError("by zero"), ZeroDivisionError(f"by {PASSWORD}")]

    async def perform(*_: object) -> ToolFinished:
        raise errors.pop(0)

    with pytest.raises(ZeroDivisionError, match="by zero"):
        await run_tool(perform, redactor, frozenset(), calling("log_in", text), scene_of(noop))
    found = await run_tool(perform, redactor, frozenset(), calling("log_in", text), scene_of(noop))
    assert isinstance(found, ToolFinished)
    stands = json.loads(text)["password"]
    assert (found.outcome, found.content) == (
        Outcome.CRASHED,
        f"Tool execution crashed: ZeroDivisionError: by {stands}",
    )


async def test_a_tool_that_is_configured_no_more_is_left_to_its_performer_with_the_values() -> None:
    redactor, ran = redactor_of(), list[str]()
    text = await redactor.arguments("gone", given())

    async def perform(request: RunTool, _: PerformContext) -> ToolFinished:
        ran.append(request.arguments)
        return ToolFinished(request="r-1", content="no such tool", at=0.0)

    await run_tool(perform, redactor, frozenset(), calling("gone", text), scene_of(noop))
    assert [json.loads(arguments) for arguments in ran] == [json.loads(given())]


@pytest.mark.parametrize(
    "answer",
    [None, HookAnswered(request="r-1", said=(HookSaid(name="g"),), at=0.0)],
    ids=["none", "no change"],
)
async def test_an_answer_of_hooks_that_changes_no_arguments_goes_on_as_it_is(
    answer: HookAnswered | None,
) -> None:
    async def perform(*_: object) -> HookAnswered | None:
        return answer

    request = FireHook(id="r-1", hook=Hook.PRE_TOOL_USE, names=("g",), payload='{"tool_name": "log_in"}')
    assert await ask(perform, redactor_of(), request, scene_of(noop)) is answer


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
