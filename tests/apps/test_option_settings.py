"""Which setting an option of the command line takes the place of, as the page on settings says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from turnwheel.apps.cli.build_settings import settings_for
from turnwheel.apps.cli.options import for_run, run_options_of
from turnwheel.settings import Settings
from turnwheel.settings.keys import keys
from turnwheel.settings.settings import Host

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text("utf-8")

ROW = r"^\| `(--[a-z-]+)` \| `([a-z_.]+)` \|"
ROWS = dict(re.findall(ROW, PAGE, re.MULTILINE))

# Options that say something of this call of the program, or of the session, for which there is no setting.
NO_SETTING = {
    *("--settings", "--stand-in", "--title", "--file", "--lift", "--yes", "--takeover"),
    *("--quiet", "--verbose", "--json", "--help"),
}

# For each option that reaches the agent a value, and what the setting holds then besides other values.
VALUES: dict[str, tuple[str, str]] = {
    "--model": ("openai:x", "openai:x"),
    "--price": ("1,2", "Decimal('2')"),
    "--also-model": ("openai:x", "openai:x"),
    "--fallback": ("openai:x", "openai:x"),
    "--base-url": ("http://there/v1", "http://there/v1"),
    "--system": ("be brief", "be brief"),
    "--instructions": ("NOTES.md", "NOTES.md"),
    "--tools": ("read", "read"),
    "--cwd": ("..", ".."),
    "--dir": ("..", ".."),
    "--allow": ("read", "read"),
    "--ask": ("read", "read"),
    "--deny": ("read", "read"),
    "--hook": ("stop=true", "true"),
    "--no-hooks": ("", "()"),
    "--mode": ("plan", "plan"),
    "--answer-within": ("7", "7.0"),
    "--parallel": ("", "parallel_reads"),
    "--sandbox": ("", "Sandbox("),
    "--telemetry": ("", "Telemetry("),
    "--max-turns": ("7", "7"),
    "--max-tokens": ("7", "7"),
    "--max-usd": ("7", "7"),
    "--max-seconds": ("7", "7.0"),
}


def run_options() -> dict[str, click.Parameter]:
    @for_run
    def ran(**_: Any) -> None: ...

    parameters: list[click.Parameter] = click.command()(ran).params
    return {max(each.opts, key=len): each for each in parameters if each.opts[0].startswith("-")}


def test_the_page_has_each_option_that_is_a_setting() -> None:
    assert ROWS.keys() | NO_SETTING == run_options().keys() | {"--help"}
    known = {str(key) for key in keys(Settings)}
    assert [key for key in ROWS.values() if not any(f"{each}.".startswith(f"{key}.") for each in known)] == []
    apart = {"--session", "--resume", "--continue", "--store"}  # these choose the session and its store
    assert VALUES.keys() == ROWS.keys() - apart


@pytest.mark.parametrize("option", VALUES)
def test_an_option_takes_the_place_of_its_setting(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value, expected = VALUES[option]
    words = [option, value] if value else [option]
    # A budget in USD needs a price.
    words += ["--price", "1,1"] if option == "--max-usd" else []
    words += [] if "--model" in words else ["--model", "openai:gpt-5"]

    @click.command()
    @for_run
    def ran(**options: Any) -> None:
        parsed = run_options_of(options)
        found: Any = settings_for(parsed, None, base_url=parsed.base_url)
        for part in ROWS[option].split("."):
            found = getattr(found, part)
        assert expected in (str(found) if isinstance(found, str) else repr(found))

    ran.main(args=words, standalone_mode=False)


def test_the_page_names_what_is_code() -> None:
    sentence = PAGE.split("Code goes to `Settings.agent`.")[1].split("go to the `Agent`")[0]
    named = set(re.findall(r"`([a-z_]+)`", sentence)) - {"tools", "hooks"}
    assert named == Host.__annotations__.keys()
