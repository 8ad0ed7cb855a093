"""The console as people install it: from the wheel, in an environment of its own, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.console_page import begin, sees

from .conftest import FLAGS, Console

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]


def run(*command: str | Path, cwd: Path) -> None:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=500)
    if ended.returncode and "No matching distribution" in ended.stderr:
        pytest.skip(f"no registry can be reached: {ended.stderr[-300:]}")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The programs of an environment with the wheel and its extra `server`, and nothing of this checkout."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n")
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            copy = tmp_path / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    programs = tmp_path / "venv" / "bin"
    pip = (programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", "wheels", "./source", cwd=tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("turnwheel-*.whl")
    run(*pip, "install", f"turnwheel[server] @ {wheel.as_uri()}", cwd=tmp_path)
    return programs


async def test_the_installed_console_works_without_a_network(
    installed: Path, chromium: str, tmp_path: Path
) -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415  # it takes a while, and few tests ask

    work = tmp_path / "work"
    work.mkdir()
    Path(work, "README.md").write_text("# Demo\n", "utf-8")
    command = (installed / "turnwheel", "serve", "--stand-in", "--store", f"{tmp_path}/s.db")
    quiet = {name: value for name, value in os.environ.items() if not name.lower().endswith("proxy")}
    with subprocess.Popen(command, cwd=work, env=quiet, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            asked: list[str] = []
            faults: list[str] = []
            async with async_playwright() as playwright:
                # Names lead nowhere, so that a look at another host fails and is counted.
                nowhere = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
                browser = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, nowhere])
                page = await Console(url, browser, faults).page()
                page.on("request", lambda request: asked.append(request.url))
                await page.reload()
                await begin(page, "Look over this repository and write a report to REPORT.md")
                await page.locator(".question").wait_for()
                await page.get_by_role("button", name="Show all to approve").click()
                await page.get_by_role("button", name="Approve", exact=True).click()
                await sees(page, "Run finished")
                for tab in ("Step", "Next moves", "Spend", "Children"):
                    await page.get_by_role("tab", name=tab).click()
                    await page.locator(".panel > :not(.empty), .panel > .empty").first.wait_for()
                await page.locator(".tw-chart .state.lit[data-state=done]").wait_for()
                await browser.close()
            assert faults == []
            assert [each for each in asked if not each.startswith(url)] == []
            assert asked
            assert Path(work, "REPORT.md").exists()
        finally:
            server.terminate()
