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

from turnwheel import Limits, ModelSpec, Policy, Price, Rule, Settings
from turnwheel.effects import config
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.request_extras import HeaderPairs, JSONObjectText, ProviderTools
from turnwheel.performers import RateLimit
from turnwheel.performers.stores.place import StorePlace
from turnwheel.performers.stores.postgres.address import DatabaseAddress
from turnwheel.settings import CommandHook, Preset
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

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def toml(text: str, name: str = "turnwheel.toml") -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def load(env: Mapping[str, str] | None = None, **told: Any) -> Settings:
    """The settings of the file that is here, of *env* and no other variable, and of what is *told*."""
    return Settings.load(env=env or {}, **told)


def wrong(env: Mapping[str, str] | None = None, **told: Any) -> list[str]:
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
    StorePlace: ("some/where", "some/where"),
    tuple[str, ...]: (["a", "b"], "a, b"),
    tuple[Path, ...]: (["a", "b"], "a,b"),
    tuple[Rule, ...]: (["deny bash"], "deny bash"),
    tuple[ModelSpec, ...]: (["x", {"name": "y", "thinking": 9}], '["x", { name = "y", thinking = 9 }]'),
    tuple[RateLimit, ...]: ([{"model": "x", "tokens": 9}], '[{ model = "x", tokens = 9 }]'),
    HeaderPairs: ({"x-team": "t"}, '{ x-team = "t" }'),
    JSONObjectText: ({"top_k": 3}, '{"top_k": 3}'),
    ProviderTools: ([{"type": "web_search"}], '[{ type = "web_search" }]'),
    tuple[CommandHook, ...]: ([{"at": "stop", "command": ["x"]}], '[{ at = "stop", command = ["x"] }]'),
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
    made: dict[str, Any] = {}
    for (*above, name), value in flat.items():
        table = made
        for part in above:
            table = table.setdefault(part, {})
        table[name] = value
    return made


def at(settings: Settings, way: tuple[str, ...]) -> object:
    value: Any = settings
    for part in way:
        found = {each.name: each for each in value} if isinstance(value, tuple) else None
        value = getattr(value, part) if found is None else found[part]
    return value


@each_key
def test_a_setting_is_told_in_python_in_a_file_and_in_the_environment(key: SettingKey) -> None:
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
    extras = key.kind in {HeaderPairs, JSONObjectText}  # a table of anything is one of these
    way, odd = way_of(key), [1] if extras else {1: object}
    (fault,) = wrong(**tree({**beside(key), way: odd}))
    taken = key.accepts if key.kind != tuple[tuple[str, str], ...] else ""
    shown = "a value that is not shown" if key.secret else repr(odd)
    assert fault == f"argument {'.'.join(way)} must be {taken}; got {shown}"


def test_a_credential_in_a_header_or_a_body_is_refused_and_not_shown() -> None:
    value = "sk-abcdef0123456789"
    headers = {"X-Team": "t", "Authorization": f"Bearer {value}"}
    toml(f'[model]\nname = "m"\nextra_headers = {as_toml(headers)}\nextra_body = {{ api_key = "{value}" }}')
    faults = wrong()
    assert value not in "".join(faults)
    held = "looks like a credential, and a journal would hold it"
    named = "name an environment variable in it, such as 'Bearer ${GATEWAY_KEY}'"
    other = "pass api_key, or name an environment variable in extra_headers"
    assert faults == [
        f"turnwheel.toml: model.extra_headers is refused: 'Authorization' {held}; {named}",
        f"turnwheel.toml: model.extra_body is refused: 'api_key' {held}; {other}",
    ]
    toml("")
    (fault,) = wrong({"TURNWHEEL_MODEL": '{ name = "m", extra_body = "[]" }'})
    assert fault == "TURNWHEEL_MODEL: model.extra_body must be a JSON object; got '[]'"


# The order


def test_python_wins_over_the_environment_and_that_over_the_file() -> None:
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
    toml('stop = ["a"]\n[limits]\nturns = 1')
    settings = load({"TURNWHEEL_LIMITS__USD": "2"}, limits=Limits(tokens=3), stop=["b"])
    assert (settings.limits, settings.stop) == (Limits(tokens=3), ("b",))
    assert settings.sources == {"limits": "argument", "stop": "argument"}
    assert settings.told("limits.turns")
    assert not settings.told("policy")


def test_the_environment_is_that_of_the_process_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    toml("system = 'here'")
    monkeypatch.setenv("TURNWHEEL_STOP", "x")
    settings = Settings.load(toml("system = 'there'", "other.toml"))
    assert (settings.system, settings.stop) == ("there", ("x",))


def test_what_is_said_of_a_model_is_said_of_the_one_beside_it() -> None:
    toml('[model]\nname = "a"\nprice = { input = 1, output = 2 }\nthinking = 9')
    priced = ModelSpec(name="a", thinking=9, price=Price(input=1, output=2))
    assert load().model == priced
    assert load({"TURNWHEEL_MODEL": "a"}).model == priced
    assert load({"TURNWHEEL_MODEL": "b"}).model == ModelSpec(name="b")
    assert load({"TURNWHEEL_MODEL": "b", "TURNWHEEL_MODEL__THINKING": "5"}).model == ModelSpec(
        name="b", thinking=5
    )


def test_paths_in_a_file_begin_at_its_folder() -> None:
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


def test_a_store_may_be_the_address_of_a_database() -> None:
    address = DatabaseAddress("postgresql://me:secret@host/db")
    file = toml('store = "postgresql://me:secret@host/db"', "etc/our.toml")
    assert Settings.load(file, {}).store == address
    assert load({"TURNWHEEL_STORE": address.dsn}).store == address
    assert load(store=address.dsn).store == load(store=address).store == address
    assert load(store="none").store == Path("none")
    assert load(store=None).store is None
    assert wrong(store=7)[0].endswith("a path, or an address such as postgresql://host/database; got 7")


def test_a_store_at_another_url_is_refused_without_its_password() -> None:
    file = toml('store = "redis://me:secret@host"', "etc/our.toml")
    with pytest.raises(ConfigError) as caught:
        Settings.load(file, {})
    start = "etc/our.toml: store is refused: 'redis://me:(hidden)@host' is neither"
    assert str(caught.value).startswith(start)
    with pytest.raises(ConfigError, match=r"TURNWHEEL_STORE is refused: .* write 'a\.db'"):
        load({"TURNWHEEL_STORE": "sqlite:///a.db"})


@pytest.mark.parametrize("preset", Preset)
def test_a_preset_is_a_policy_that_single_settings_are_laid_over(preset: Preset) -> None:
    named = {"DEFAULT": Policy()} | {
        name: value for name, value in vars(config).items() if isinstance(value, Policy)
    }
    assert {each.name: each.policy for each in Preset} == named
    toml(f'preset = "{preset}"\n[policy]\nmax_parallel = 9')
    assert load().policy == attrs.evolve(preset.policy, max_parallel=9)
    assert Settings(preset=preset).policy == preset.policy
    toml(f'preset = "{preset}"\n[retries]\nbase = 9')
    assert load().retries == attrs.evolve(preset.retries, base=9)
    assert Settings(preset=preset).retries == preset.retries


def test_a_preset_is_the_source_of_what_it_says() -> None:
    told = load(preset="singleton").sources
    assert told == {
        "preset": "argument",
        "policy.on_denial": "preset singleton",
        "policy.coalesce": "preset singleton",
        "policy.coalesce_longest": "preset singleton",
        "retries.failed": "preset singleton",
        "retries.longest": "preset singleton",
    }


# Mistakes; each is a story of the command line as well


def test_a_variable_names_the_key_where_it_holds_more_than_that() -> None:
    assert wrong({"TURNWHEEL_DEBUG": "loud"}, system=5) == [
        "argument system must be a text; got 5",
        "TURNWHEEL_DEBUG: debug.level must be one of off, info, debug; got 'loud'",
    ]
    assert wrong({"TURNWHEEL_NO__SUCH": "1"}, limits={"turns": 1})[0].startswith("TURNWHEEL_NO__SUCH: no is")
    assert load({"TURNWHEEL_MODEL": " ", "TURNWHEEL_LIMITS__USD": ""}) == load() == Settings()
    assert load().sources == {}


def test_a_file_that_is_no_text_is_told() -> None:
    Path("a.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"the settings in 'a.toml' cannot be read: 'utf-8' codec can't"):
        Settings.load("a.toml", {})
    with pytest.raises(ConfigError, match=r"the settings in '.' cannot be read: .* Is a directory: '.'"):
        Settings.load(".", {})


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
        way = key.path if place is None else tuple(place.split("."))
        name = "" if ITEM in key.path else variable(way)
        told = [SAME[place], ""] if place else [key.accepts, usual(key.attribute.default)]
        found[place or str(key)] = [name, *told]
    return found


def usual(default: object) -> str:
    """A default as the page has it: what is nothing is left out."""
    if default in (None, "", (), attrs.NOTHING) or not isinstance(default, str | int | float | Path):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_the_page_has_every_setting_as_the_classes_do() -> None:
    told = rows("Key")
    assert {row[0]: row[1:4] for row in told} == expected()
    assert len(told) == len(expected())
    assert [row[0] for row in told if not row[4]] == []


def test_the_page_says_what_others_call_a_setting() -> None:
    there = {row[0]: row[1] for row in rows("There")}
    assert there == {**OTHER_NAMES, **{name: f"none: {why}" for name, why in NOT_DATA.items()}}
    known = {str(key) for key in keys(Settings)}
    assert [key for key in OTHER_NAMES.values() if key not in known | fields_of(Settings).keys()] == []


def test_the_example_of_the_page_is_one() -> None:
    example, faulty = PAGE.split("```toml\n")[1].split("```")[0], PAGE.split("```text\n")[1].split("```")[0]
    toml(example)
    assert load().limits == Limits(turns=40, usd="1.50")
    toml("limits.turn = 1")
    assert [f"  {fault}" for fault in wrong({"TURNWHEEL_LIMITS__USD": "-1"})] == faulty.splitlines()[1:]


# Weight


def test_what_reads_settings_is_imported_by_those_only_who_read_some() -> None:
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
