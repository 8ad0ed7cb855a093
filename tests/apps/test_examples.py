"""The examples do what they say they do."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOOP = (
    'pay {"account": "rent", "cents": 100}\npay {"account": "food", "cents": 5}\n',
    "The rent is paid, the food is not.",
    'answered: yes, with {"account": "rent", "cents": 90}, by Bob',
    "ended: ok: paid 90 cents from rent\n",
)
TEAM = (
    "the pier is quiet\nthe mill is quiet\nNot started: there is only 1 of 2 USD left for 'scout'. ",
    "The rest is set aside for agents at work; ask again when they are done.\nend_turn, $6\n",
)
BACK = (
    " 0            UserSent\n 1 streaming  RunOpened\n",
    " 5 streaming  ToolFinished\n",
    "refunded: 99900, and in the fork: [999]\nthey differ at step 5, in event.content\n",
)


MOUNT = (
    "{'hello': 'world'}\nmay refund run with {'cents': 99900}?\n",
    "refunded 999 cents\nended: end_turn, after 2 turns\n",
)
WIRE = ("TextPiece(text='Hi', begins=False)\n", "response='', model='', detail='')\n")
CELERY = (
    "job-1: Order 1 is shipped. It took 2 turns.\njob-1: Order 1 is shipped. It took 2 turns.\n",
    "job-2: Order 2 is shipped. Its first worker was killed.\njob-3: rests at a question",
    "job-3: Order 3 is refunded.\n2 parcels for 2 orders\n",
)
INBOX = (
    "deploys: I read: Deploy the site / to staging, please\nlunch: I read: Pizza?\n",
    "stopped, with 0 answers for a message within its window\nlunch: I read: Soup!\n",
)
BATCH = (
    "stopped: ",
    " for 450 rows, ",
    "$0.40 for 500 rows, 50 new\nagain: ",
    "$0.40 for 500 rows, 0 new\n",
)
THREADS = (
    "the model is overloaded: asked again\n",
    "fetch: A has news\n",
    'may publish run with {"page": "D"}?\npublish: D is public\nmodel: Once upon a time\n',
    "interrupted, and kept: Once upon a time\n",
)
TELEMETRY = (
    "It is paid back.\nPOST /orders\n  invoke_agent [rests]\n    chat gpt-5 (10 tokens in)\n",
    "    execute_tool find_order\n      database\n    chat gpt-5 (10 tokens in)\n",
    "POST /approvals\n  invoke_agent (30 tokens in) <- invoke_agent\n",
    "    execute_tool refund\n    chat gpt-5 (10 tokens in)\n",
)
TRIO = (
    "  0 s  the model is overloaded: asked again\n",
    "  4 s  fetch: ok: A has news\n 63 s  fetch: timed_out: It took more than 60.0 s.\n",
    "300 s  watch: cancelled: The tool was stopped.\n300 s  interrupted, after 2 turns\n",
)


@pytest.mark.parametrize(
    ("script", "parts"),
    [
        ("people_in_the_loop", LOOP),
        ("team_on_a_budget", TEAM),
        ("back_in_time", BACK),
        ("own_wire", WIRE),
        ("fastapi_mount", MOUNT),
        ("celery_worker", CELERY),
        ("webhook_inbox", INBOX),
        ("batch", BATCH),
        ("plain_threads", THREADS),
        ("telemetry", TELEMETRY),
        ("trio_drive", TRIO),
    ],
)
def test_an_example_prints_what_it_shows(
    script: str, parts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert [part for part in parts if part not in out] == []
    assert (out.startswith(parts[0]), out.endswith(parts[-1])) == (True, True)


FASTAPI = """\
202; we read, and leave in the middle
  RunStarted
  InputTaken
  ModelCalled
  TurnEnded
  CallJudged
  ToolStarted
we come back with the last id
  CallSettled
  ModelCalled
  TurnEnded
  CallJudged
  ApprovalRequested
the service restarts; may refund run with {"cents": 999}?
204
  RunResumed
  ApprovalResolved
  CallJudged
  ToolStarted
  CallSettled
  ModelCalled
  TurnEnded
  RunEnded
once more, from the beginning
  RunStarted
  InputTaken
  ModelCalled
  TurnEnded
  CallJudged
  ToolStarted
  CallSettled
  ModelCalled
  TurnEnded
  CallJudged
  ApprovalRequested
  RunResumed
  ApprovalResolved
  CallJudged
  ToolStarted
  CallSettled
  ModelCalled
  TurnEnded
  RunEnded
missed or twice: False
a second answer: 409
"""
STARLETTE = """\
It has states and moves.
Once upon a time
a second prompt: 409
an interrupt: 204
the rest: []
The end.
"""
DJANGO = """\
202; may refund run with {'cents': 999}?
end_turn: You get 999 cents back.
On weekdays.
"""
FLASK = """\
We are open on weekdays.
may refund run with {"cents": 999}?
end_turn: You get 999 cents back.
a second answer: 409
"""
WEB_APPS = {
    "fastapi_background": FASTAPI,
    "starlette_routes": STARLETTE,
    "django_views": DJANGO,
    "flask_sync": FLASK,
}


def printed_by(*command: str) -> str:
    """What Python prints in a process of its own: the settings of Django hold for a whole process."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", *command], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert (ran.stderr, ran.returncode) == ("", 0)
    return ran.stdout


@pytest.mark.parametrize(("script", "shown"), WEB_APPS.items())
def test_a_web_app_prints_what_it_shows(script: str, shown: str) -> None:
    # An id has the number of a journal's entry, and how many entries a stream takes depends on the machine.
    assert re.sub(r"^ +[0-9]+\.[0-9]+", " ", printed_by(f"{script}.py"), flags=re.MULTILINE) == shown


LEFT = """
import django_views
from django.test import Client

name = Client().post("/runs", {"prompt": "Refund order 7"}).json()["session"]

async def look():
    session = await django_views.agent.session(name).load()
    await session.check_free()
    print(session.unfinished)

django_views.agent.await_sync(look())
"""


def test_an_async_view_under_wsgi_leaves_the_run_that_it_began() -> None:
    assert printed_by("-c", LEFT) == "True\n"


def test_an_example_that_needs_a_key_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="set OPENAI_API_KEY or pass api_key"):
        runpy.run_path(str(EXAMPLES / "own_tool.py"), run_name="__main__")
