"""Settings: three sources, one order, all mistakes at once; and that each setting does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel import (
    ChildSpec,
    Compaction,
    Limits,
    Loops,
    ModelSpec,
    Policy,
    Price,
    Rule,
    Settings,
)
from turnwheel.effects import config
from turnwheel.effects.errors import ConfigError
from turnwheel.settings import (
    CommandHook,
    Debug,
    Level,
    Preset,
)
from turnwheel.settings.keys import (
    ANY_NAME,
    ITEM,
    NOT_DATA,
    OTHER_NAMES,
    SettingKey,
    fields_of,
    keys,
    variable,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "settings.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own."""
    monkeypatch.chdir(tmp_path)


def toml(text: str, name: str = "turnwheel.toml") -> Path:
    """A file of settings that says *text*."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def load(env: Mapping[str, str] | None = None, **told: Any) -> Settings:
    """The settings of the file that is here, of *env* and no other variable, and of what is *told*."""
    return Settings.load(env=env or {}, **told)


def wrong(env: Mapping[str, str] | None = None, **told: Any) -> list[str]:
    """All that is wrong with them."""
    with pytest.raises(ConfigError) as caught:
        load(env, **told)
    first, *faults = str(caught.value).split("\n  ")
    assert not faults or first == f"{len(faults)} settings are wrong:"
    return faults or [first]


# Every key, from every source


SAMPLES: dict[object, tuple[object, str]] = {
    str: ("some text", "some text"),
    int: (7, "7"),
    float: (0.5, "0.5"),
    bool: (True, "yes"),
    Decimal: (Decimal("1.50"), "1.50"),
    Path: ("some/where", "some/where"),
    tuple[str, ...]: (["a", "b"], "a, b"),
    tuple[Path, ...]: (["a", "b"], "a,b"),
    tuple[Rule, ...]: (["deny bash"], "deny bash"),
    tuple[ModelSpec, ...]: (["x", {"name": "y", "thinking": 9}], '["x", { name = "y", thinking = 9 }]'),
    tuple[CommandHook, ...]: (
        [{"at": "stop", "command": ["x"]}],
        '[{ at = "stop", command = ["x"] }]',
    ),
}
"""For each kind of setting a value as a file has it, and as a variable does."""

each_key = pytest.mark.parametrize("key", [key for key in keys(Settings) if ITEM not in key.path], ids=str)


def sample(key: SettingKey) -> tuple[object, str]:
    """A value for *key* that is not its default, as a file has it, and as a variable does."""
    if isinstance(key.kind, type) and issubclass(key.kind, StrEnum):
        other = [each for each in key.kind if each != key.attribute.default][-1]
        return other.value, other.value
    if key.kind is bool:
        return not key.attribute.default, str(not key.attribute.default)
    return SAMPLES[key.kind]


def way_of(key: SettingKey) -> tuple[str, ...]:
    """The way to *key*, with a name for an agent's."""
    return tuple("helper" if part == ANY_NAME else part for part in key.path)


def beside(key: SettingKey) -> dict[tuple[str, ...], object]:
    """What must be told for *key* to be told at all: a name for a model, both numbers of a price."""
    way, more = way_of(key), dict[tuple[str, ...], object]()
    for end, part in enumerate(way[:-1], 1):
        if part in {"model", "fallback"}:
            more[(*way[:end], "name")] = "some text"
        if part == "price":
            more |= {(*way[:end], "input"): Decimal("1.50"), (*way[:end], "output"): Decimal("1.50")}
    return more


def tree(flat: Mapping[tuple[str, ...], object]) -> dict[str, Any]:
    """Tables in tables."""
    made: dict[str, Any] = {}
    for (*above, name), value in flat.items():
        table = made
        for part in above:
            table = table.setdefault(part, {})
        table[name] = value
    return made


def at(settings: Settings, way: tuple[str, ...]) -> object:
    """What *settings* say at the end of *way*."""
    value: Any = settings
    for part in way:
        value = (
            next(each for each in value if each.name == part)
            if isinstance(value, tuple)
            else getattr(value, part)
        )
    return value


@each_key
def test_a_setting_is_told_in_python_in_a_file_and_in_the_environment(key: SettingKey) -> None:
    """All of them mean the same, and it is known which one it was."""
    way, (value, text) = way_of(key), sample(key)
    name = variable(way)
    python = load(**tree({**beside(key), way: value}))
    env = load({**{variable(each): str(more) for each, more in beside(key).items()}, name: text})
    written = [f"{'.'.join(each)} = {as_toml(more)}" for each, more in {**beside(key), way: value}.items()]
    toml("\n".join(written))
    file = load()
    assert at(python, way) == at(env, way) == at(file, way) != key.attribute.default
    assert [each.sources[".".join(way)] for each in (python, env, file)] == [
        "argument",
        name,
        "turnwheel.toml",
    ]


def as_toml(value: object) -> str:
    """*value* in TOML."""
    match value:
        case bool() | str():
            return json.dumps(value)
        case dict():
            return f"{{ {', '.join(f'{name} = {as_toml(each)}' for name, each in value.items())} }}"
        case list():
            return f"[{', '.join(map(as_toml, value))}]"
        case _:
            return str(value)


@each_key
def test_a_wrong_value_is_told_with_its_place_and_what_is_accepted(key: SettingKey) -> None:
    """For every key, of a value that no setting takes."""
    way, odd = way_of(key), {1: object}
    (fault,) = wrong(**tree({**beside(key), way: odd}))
    taken = key.accepts if key.kind != tuple[tuple[str, str], ...] else ""
    shown = "a value that is not shown" if key.secret else repr(odd)
    assert fault == f"argument {'.'.join(way)} must be {taken}; got {shown}"


# The order


def test_python_wins_over_the_environment_and_that_over_the_file() -> None:
    """Setting by setting; what nobody tells has its default."""
    toml("[limits]\nturns = 1\ntokens = 1\nusd = 1.1\n[policy]\nmax_parallel = 9")
    env = {"TURNWHEEL_LIMITS__TOKENS": "2", "TURNWHEEL_LIMITS__USD": "2.2"}
    settings = load(env, limits={"usd": "3.3"})
    assert settings.limits == Limits(turns=1, tokens=2, usd="3.3")
    assert settings.policy == Policy(max_parallel=9)
    assert settings.sources == {
        "limits.turns": "turnwheel.toml",
        "limits.tokens": "TURNWHEEL_LIMITS__TOKENS",
        "limits.usd": "argument",
        "policy.max_parallel": "turnwheel.toml",
    }


def test_an_object_takes_the_place_of_a_whole_table() -> None:
    """It says all that there is to say; a list does so as well."""
    toml('stop = ["a"]\n[limits]\nturns = 1')
    settings = load({"TURNWHEEL_LIMITS__USD": "2"}, limits=Limits(tokens=3), stop=["b"])
    assert (settings.limits, settings.stop) == (Limits(tokens=3), ("b",))
    assert settings.sources == {"limits": "argument", "stop": "argument"}
    assert settings.told("limits.turns")
    assert not settings.told("policy")


def test_without_a_file_there_are_the_defaults() -> None:
    """And those of the class are those of the words."""
    assert load() == Settings()
    assert load().sources == {}


def test_the_environment_is_that_of_the_process_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file that is named, and not the one that is here."""
    toml("system = 'here'")
    monkeypatch.setenv("TURNWHEEL_STOP", "x")
    settings = Settings.load(toml("system = 'there'", "other.toml"))
    assert (settings.system, settings.stop) == ("there", ("x",))


def test_a_variable_that_is_empty_says_nothing() -> None:
    """As a shell leaves it."""
    assert load({"TURNWHEEL_MODEL": " ", "TURNWHEEL_LIMITS__USD": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "way", "value"),
    [
        (
            "RULES",
            '["deny bash:command=rm *,x=1", "ask ls"]',
            ("rules",),
            (
                Rule(verdict="deny", tool="bash", where=(("command", "rm *"), ("x", "1"))),
                Rule(verdict="ask", tool="ls"),
            ),
        ),
        ("LIMITS", "{ usd = 1.5, turns = 2 }", ("limits",), Limits(usd="1.5", turns=2)),
        ("DEBUG", "1", ("debug", "level"), Level.DEBUG),
        ("DEBUG", "off", ("debug", "level"), Level.OFF),
        ("DEBUG", "info", ("debug", "level"), Level.INFO),
        ("LOOPS", "off", ("loops",), Loops.never()),
        ("LIMITS__TURNS", "none", ("limits", "turns"), None),
        ("RETRIES__LONGEST", "none", ("retries", "longest"), None),
        ("SESSION__PERSIST", "No", ("session", "persist"), False),
        ("AGENTS__HELPER__LIMITS__USD", "1", ("agents", "helper", "limits", "turns"), 10),
        ("MODELS", "a, b", ("models",), (ModelSpec(name="a"), ModelSpec(name="b"))),
        ("SYSTEM", "5", ("system",), "5"),
        ("INSTRUCTIONS", "[]", ("instructions",), ()),
        ("COMPACTION__RESULT_LIMIT", "20_000", ("compaction", "result_limit"), 20_000),
    ],
)
def test_a_variable_is_text_for_a_value_of_any_kind(
    name: str, text: str, way: tuple[str, ...], value: object
) -> None:
    """Lists with commas or as in TOML; tables as in TOML; short forms as in a file."""
    assert at(load({f"TURNWHEEL_{name}": text}), way) == value


@pytest.mark.parametrize(
    ("text", "way", "value"),
    [
        ('model = "x"', ("model",), ModelSpec(name="x")),
        ("debug = true", ("debug",), Debug(level="debug")),
        ("debug = false", ("debug",), Debug()),
        ('debug.file = "x.log"', ("debug",), Debug(file=Path("x.log"), level="debug")),
        ("loops = false", ("loops",), Loops.never()),
        ('compaction.clear_over = "none"', ("compaction",), Compaction(clear_over=None)),
        ("[agents.helper]", ("agents", "helper"), ChildSpec(name="helper")),
        ('[[agents]]\nname = "a"', ("agents",), (ChildSpec(name="a"),)),
        ("model.thinking = 9", ("model",), ModelSpec(name="openai:gpt-5", thinking=9)),
        ('agents.a.tools = "none"', ("agents", "a", "tools"), None),
        (
            "agents.a.limits.turns = 3",
            ("agents", "a", "limits"),
            Limits(turns=3, tokens=100_000, seconds=60.0),
        ),
        (
            '[[hooks]]\nat = "pre_tool_use"\ncommand = ["x"]\nwhere = { path = "a/*" }',
            ("hooks",),
            (CommandHook(at="pre_tool_use", command=["x"], where=(("path", "a/*"),)),),
        ),
    ],
)
def test_a_file_has_short_forms(text: str, way: tuple[str, ...], value: object) -> None:
    """And what is left out of a table is as its own default says."""
    toml(text)
    assert at(load(), way) == value


def test_what_is_said_of_a_model_is_said_of_the_one_beside_it() -> None:
    """A price in the file does not hold for the model that a variable names."""
    toml('[model]\nname = "a"\nprice = { input = 1, output = 2 }\nthinking = 9')
    priced = ModelSpec(name="a", thinking=9, price=Price(input=1, output=2))
    assert load().model == priced
    assert load({"TURNWHEEL_MODEL": "a"}).model == priced
    assert load({"TURNWHEEL_MODEL": "b"}).model == ModelSpec(name="b")
    assert load({"TURNWHEEL_MODEL": "b", "TURNWHEEL_MODEL__THINKING": "5"}).model == ModelSpec(
        name="b", thinking=5
    )


def test_paths_in_a_file_begin_at_its_folder() -> None:
    """Those of variables and of Python where the process was started; a bare program is looked for."""
    file = toml(
        'cwd = "work"\ndirectories = ["a", "/b"]\nstore = "s.db"\ndebug = { file = "x.log" }\n'
        'hooks = [{ at = "stop", command = ["./h.sh", "./arg"] }, { at = "stop", command = ["true"] }]',
        "etc/our.toml",
    )
    settings = Settings.load(file, {"TURNWHEEL_STORE": "t.db"})
    assert (settings.cwd, settings.directories) == (Path("etc/work"), (Path("etc/a"), Path("/b")))
    assert (settings.debug.file, settings.store) == (Path("etc/x.log"), Path("t.db"))
    assert [hook.command for hook in settings.hooks] == [
        (str(Path("etc/h.sh").absolute()), "./arg"),
        ("true",),
    ]


@pytest.mark.parametrize("preset", Preset)
def test_a_preset_is_a_policy_that_single_settings_are_laid_over(preset: Preset) -> None:
    """Each policy that has a name is there by it."""
    named = {"DEFAULT": Policy()} | {
        name: value for name, value in vars(config).items() if isinstance(value, Policy)
    }
    assert {each.name: each.policy for each in Preset} == named
    toml(f'preset = "{preset}"\n[policy]\nmax_parallel = 9')
    assert load().policy == attrs.evolve(preset.policy, max_parallel=9)
    assert Settings(preset=preset).policy == preset.policy


def test_a_preset_is_the_source_of_what_it_says() -> None:
    """And of nothing else."""
    told = load(preset="singleton").sources
    assert told == {
        "preset": "argument",
        "policy.on_denial": "preset singleton",
        "policy.coalesce": "preset singleton",
    }


# Mistakes


def test_all_mistakes_are_told_at_once() -> None:
    """Each with where it stands; of one table too."""
    toml('[limits]\nturns = 0\ntokens = "many"\n[policy]\ngates = "open"')
    assert wrong({"TURNWHEEL_RETRIES__BASE": "-1"}, system=5) == [
        "argument system must be a text; got 5",
        "turnwheel.toml: limits.turns must be a whole number above 0, or 'none'; got 0",
        "turnwheel.toml: limits.tokens must be a whole number above 0, or 'none'; got 'many'",
        "turnwheel.toml: policy.gates must be one of hooks_first, rules_first; got 'open'",
        "TURNWHEEL_RETRIES__BASE must be a number, not negative; got '-1'",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("limit = 1", "limit is not known: did you mean limits?"),
        ("limits.turn = 1", "limits.turn is not known: did you mean limits.turns?"),
        ("turns = 1", "turns is not known: did you mean limits.turns?"),
        ("max_turns = 1", "max_turns is not known: it is limits.turns here"),
        ("mcp_servers = {}", "mcp_servers is not known: tools of MCP servers cannot be had yet"),
        ("sources = {}", f"sources is not known: there are {', '.join(fields_of(Settings))}"),
        (
            "limits.zzz = 1",
            "limits.zzz is not known: there are turns, tokens, usd, seconds",
        ),
        ("limits = 3", "limits must be a table with some of turns, tokens, usd, seconds; got 3"),
        ("limits.turns = true", "limits.turns must be a whole number above 0, or 'none'; got True"),
        ("limits.turns = 1.5", "limits.turns must be a whole number above 0, or 'none'; got 1.5"),
        ("limits.usd = nan", "limits.usd must be an amount in USD above 0, or 'none'; got NaN"),
        ("limits.usd = 'x'", "limits.usd must be an amount in USD above 0, or 'none'; got 'x'"),
        ("limits.seconds = inf", "limits.seconds must be a number above 0, or 'none'; got Infinity"),
        ("limits.seconds = '5'", "limits.seconds must be a number above 0, or 'none'; got '5'"),
        ("policy.compact_at = 2", "policy.compact_at must be a number above 0 and at most 1; got 2"),
        ("session.persist = 1", "session.persist must be true or false; got 1"),
        ("session.persist = 'yes'", "session.persist must be true or false; got 'yes'"),
        ("model = ' '", "model.name must be a text that is not empty; got ' '"),
        ("model.price = { input = 1 }", "model.price.output is missing"),
        ("fallback.window = 5", "fallback.name is missing"),
        ("models = ['a', { window = 1 }]", "models[1].name is missing"),
        (
            "models = ['a', 5]",
            f"models[1] must be a table with some of {', '.join(fields_of(ModelSpec))}; got 5",
        ),
        ("stop = 'a'", "stop must be a list of texts; got 'a'"),
        ("stop = [1]", "stop[0] must be a text; got 1"),
        ("rules = ['bash']", "rules[0] must be a rule such as 'allow write:path=docs/*'; got 'bash'"),
        (
            "rules = ['deny bash:x']",
            "rules[0] must be a rule such as 'allow write:path=docs/*'; got 'deny bash:x'",
        ),
        ("hooks = [{ at = 'stop', command = [] }]", "hooks[0].command must be a list of texts; got []"),
        (
            "hooks = [{ at = 'stop', command = ['x'], where = { a = 1 } }]",
            "hooks[0].where must be a table of globs by the names of arguments; got {'a': 1}",
        ),
        (
            "agents.a.limits.turns = 0",
            "agents.a.limits.turns must be a whole number above 0, or 'none'; got 0",
        ),
        (
            "agents.a = 3",
            f"agents.a must be a table with some of {', '.join(fields_of(ChildSpec))}; got 3",
        ),
        (
            "compaction.clear_keep = 20",
            "compaction.clear_keep must be at most clear_over, which is 15; got 20",
        ),
        (
            "session = { id = 'a', latest = true }",
            "session.id must stand alone: id and latest each name a session",
        ),
        (f"system = [{'1, ' * 60}]", f"system must be a text; got {str([1] * 60)[:100]}..."),
    ],
)
def test_a_mistake_in_a_file_names_its_key(text: str, fault: str) -> None:
    """And what is accepted there, or what may have been meant."""
    toml(text)
    assert wrong() == [f"turnwheel.toml: {fault}"]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("LIMITS__TURN", "1", " is not known: did you mean limits.turns?"),
        ("LIMITS_USD", "1", " is not known: did you mean limits.usd?"),
        ("LIMIT", "1", " is not known: did you mean limits?"),
        ("MAX_TURNS", "1", " is not known: it is limits.turns here"),
        ("NO__SUCH", "1", ": no is not known: there are model, models, "),
        ("MODEL__WINDOW", "x", " must be a whole number above 0; got 'x'"),
        ("LIMITS", "5", " must be a table with some of turns, tokens, usd, seconds; got '5'"),
        ("LIMITS", "{ turns = 0 }", ": limits.turns must be a whole number above 0, or 'none'; got 0"),
        ("RULES", "deny ls, bash", ": rules[1] must be a rule such as 'allow write:path=docs/*'; got 'bash'"),
        ("STOP", "[1", " must be a list of texts; got '[1'"),
        ("DEBUG", "loud", ": debug.level must be one of off, info, debug; got 'loud'"),
    ],
)
def test_a_mistake_in_a_variable_names_it(name: str, text: str, fault: str) -> None:
    """With the key where the variable holds more than that."""
    (told,) = wrong({f"TURNWHEEL_{name}": text})
    assert told.startswith(f"TURNWHEEL_{name}{fault}")


@pytest.mark.parametrize("name", ["PORT", "SERVICE_HOST", "PORT_8080_TCP", "WIRE", "HOME", "VERSION"])
def test_a_variable_that_looks_like_none_of_ours_is_left_alone(name: str) -> None:
    """Where a service is called turnwheel, Kubernetes sets such."""
    assert load({f"TURNWHEEL_{name}": "tcp://10.0.0.1:80"}) == Settings()


def test_a_secret_is_never_shown() -> None:
    """Not in the settings, not where it is wrong, not where its key is."""
    toml('apikey = "sk-1"')
    told = [str(Settings(api_key="sk-1")), *wrong(api_key=["sk-1"])]
    assert not [text for text in told if "sk-1" in text]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("none.toml", None, "there is no file of settings 'none.toml'"),
        ("a.toml", b"x = ", "the settings in 'a.toml' are no TOML: Invalid value (at end of document)"),
        ("a.toml", b"\xff", "the settings in 'a.toml' cannot be read: 'utf-8' codec can't decode byte 0xff"),
        (".", None, "the settings in '.' cannot be read: [Errno 21] Is a directory: '.'"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(name: str, data: bytes | None, says: str) -> None:
    """One that is named must be there."""
    if data is not None:
        Path(name).write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        Settings.load(name, {})
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "told",
    [
        {"limits": 5},
        {"model": 5},
        {"models": [5]},
        {"rules": ["x"]},
        {"hooks": ["x"]},
        {"stop": "x"},
        {"watch": None},
        {"preset": "x"},
    ],
)
def test_what_is_made_by_hand_is_checked_too(told: dict[str, Any]) -> None:
    """Without a word on the place: there is only one."""
    with pytest.raises((ConfigError, TypeError, ValueError)):
        Settings(**told)


# The page


def rows(heading: str) -> list[list[str]]:
    """The rows of each table of the page whose first column has that *heading*."""
    found: list[list[str]] = []
    inside = False
    for line in PAGE.splitlines():
        row = (
            [cell.strip().replace("`", "") for cell in line[1:-1].split("|")]
            if line.startswith("|")
            else [""]
        )
        inside = row[0] == heading or (inside and row != [""])
        if inside and row[0] not in {heading, "---"}:
            found.append(row)
    return found


SAME = {
    "models[]": "as model",
    "fallback": "as model",
    "agents.NAME.model": "as model",
    "session_limits": "as limits",
    "agents.NAME.limits": "as limits",
}
"""Tables that the page tells once for all places."""


def expected() -> dict[str, list[str]]:
    """What the page says of each key, or of a table that it tells once: variable, what it takes, default."""
    found: dict[str, list[str]] = {}
    for key in keys(Settings):
        place = next((place for place in SAME if str(key).startswith(f"{place}.")), None)
        if place is None:
            found[str(key)] = [key.variable, key.accepts, usual(key.attribute.default)]
        else:
            found[place] = ["" if ITEM in key.path else variable(tuple(place.split("."))), SAME[place], ""]
    return found


def usual(default: object) -> str:
    """A default as the page has it: what is nothing is left out."""
    if default in (None, "", (), attrs.NOTHING) or not isinstance(default, str | int | float | Path):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_the_page_has_every_setting_as_the_classes_do() -> None:
    """Its key, its variable, what it takes and its default; and a word on what it says."""
    told = rows("Key")
    assert {row[0]: row[1:4] for row in told} == expected()
    assert len(told) == len(expected())
    assert [row[0] for row in told if not row[4]] == []


def test_the_page_says_what_others_call_a_setting() -> None:
    """And each of these names leads to a setting that is there."""
    there = {row[0]: row[1] for row in rows("There")}
    assert there == {**OTHER_NAMES, **{name: f"none: {why}" for name, why in NOT_DATA.items()}}
    known = {str(key) for key in keys(Settings)}
    assert [key for key in OTHER_NAMES.values() if key not in known | fields_of(Settings).keys()] == []


def test_the_example_of_the_page_is_one() -> None:
    """The file that it shows is read without a fault, and the fault that it shows comes."""
    example, faulty = PAGE.split("```toml\n")[1].split("```")[0], PAGE.split("```text\n")[1].split("```")[0]
    toml(example)
    assert load().limits == Limits(turns=40, usd="1.50")
    toml("limits.turn = 1")
    assert [f"  {fault}" for fault in wrong({"TURNWHEEL_LIMITS__USD": "-1"})] == faulty.splitlines()[1:]


# Weight


def test_what_reads_settings_is_imported_by_those_only_who_read_some() -> None:
    """Neither a file nor a converter is needed by whoever says all in Python."""
    code = (
        "import sys, turnwheel\n"
        "heavy = {'cattrs', 'tomllib', 'turnwheel.settings'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
        "turnwheel.Settings()\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n['turnwheel.settings']\n"
