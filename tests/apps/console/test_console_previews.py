"""What the console shows of a file before a question about writing it is approved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.console_page import begin, sees
from support.http_server import serving

from turnwheel import Agent, tool
from turnwheel.effects import CallModel
from turnwheel.performers import builtin_tools
from turnwheel.testing.scripted import ScriptedModel, calls, says

if TYPE_CHECKING:
    from .conftest import Opens

OLD = "".join(f"line {n}\n" for n in range(8))


def writing(cwd: Path, path: str, content: str = "line 3\nnew\n") -> Agent:
    model = ScriptedModel(calls(("write", {"path": path, "content": content})), says("Written."))
    return Agent(model="openai:test", tools=builtin_tools(), cwd=cwd, performers={CallModel: model})


async def asked_about(agent: Agent) -> dict[str, object]:
    async with serving(agent) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Write"}, 201)
        request = (await server.question("s"))["id"]
        answer = await server.client.get(f"/api/sessions/s/questions/{request}/file")
        missing = await server.client.get("/api/sessions/s/questions/none/file")
        assert missing.status_code == 404
        found: dict[str, object] = answer.json()
        return found


async def test_the_file_of_a_question_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text(OLD, "utf-8")
    (tmp_path / "link.py").symlink_to("real.py")
    real = str(tmp_path.resolve() / "real.py")
    shown = {"path": real, "size": len(OLD), "before": OLD, "problem": ""}
    assert await asked_about(writing(tmp_path, "link.py")) == shown


async def test_a_new_file_has_no_size(tmp_path: Path) -> None:
    found = await asked_about(writing(tmp_path, "new.py"))
    new = str(tmp_path.resolve() / "new.py")
    assert found == {"path": new, "size": None, "before": None, "problem": ""}


async def test_no_file_outside_of_the_directories_is_read(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.txt").write_text("not for the agent", "utf-8")
    (inside / "link.txt").symlink_to(tmp_path / "other.txt")
    nothing = {"path": None, "size": None, "before": None, "problem": ""}
    assert await asked_about(writing(inside, "link.txt")) == nothing
    assert await asked_about(writing(inside, "../other.txt")) == nothing


async def test_secrets_of_a_file_are_redacted(tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_text("API_KEY=sk-0123456789abcdef\nNAME=x\n", "utf-8")
    before = (await asked_about(writing(tmp_path, "settings.env")))["before"]
    assert "sk-0123" not in str(before)
    assert "NAME=x" in str(before)


async def test_a_large_file_and_one_that_is_no_text_are_not_shown(tmp_path: Path) -> None:
    for name, data in {"large.txt": b"x" * 300_000, "picture.png": b"\x89PNG\xff"}.items():
        (tmp_path / name).write_bytes(data)
        found = await asked_about(writing(tmp_path, name))
        assert (found["size"], found["before"]) == (len(data), None)


async def test_a_tool_of_the_user_with_that_name_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(OLD, "utf-8")

    @tool(side_effect="unsafe")
    def write(path: str, content: str) -> str:
        """Write somewhere else."""
        return f"{path} {content}"

    model = ScriptedModel(calls(("write", {"path": "a.txt", "content": "b"})))
    agent = Agent(model="openai:test", tools=[write], cwd=tmp_path, performers={CallModel: model})
    assert (await asked_about(agent))["path"] is None


@pytest.mark.real
@pytest.mark.timeout(180, func_only=True)
async def test_what_a_write_takes_away_is_shown_in_its_question(console: Opens, tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text(OLD, "utf-8")
    (tmp_path / "link.py").symlink_to("real.py")
    async with console(writing(tmp_path, "link.py")) as opened:
        page = await opened.page()
        await begin(page, "Write")
        card = page.locator(".question")
        await sees(page, "Replaces the 8 lines of the file.", ".question")
        assert await card.locator(".removed").count() == 7
        # Of the last line end there is no line.
        assert await card.locator(".added .text").all_inner_texts() == ["new"]
        assert str(tmp_path.resolve() / "real.py") in await card.inner_text()
        words = await page.evaluate("""async () => {
            const {argumentsView} = await import('/console/arguments.js');
            const args = {path: 'a', content: 'b'};
            const said = (before) => argumentsView('write', args, true, {path: 'a', size: 9, before});
            return ['one\\n', ''].map((before) => said(before).querySelector('.replaces').textContent);
        }""")
        assert words == ["Replaces the only line of the file.", "The file is empty."]


@pytest.mark.real
@pytest.mark.timeout(180, func_only=True)
async def test_a_new_file_is_said_to_be_one(console: Opens, tmp_path: Path) -> None:
    async with console(writing(tmp_path, "new.py", "one\ntwo\n")) as opened:
        page = await opened.page()
        await begin(page, "Write")
        await sees(page, "A new file of 2 lines.", ".question")
        assert await page.locator(".question .added .text").all_inner_texts() == ["one", "two"]
