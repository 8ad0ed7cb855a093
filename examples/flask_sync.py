"""
An agent in Flask, with an approval between two requests. A scripted model: no key.

Each request works to the end of a run, or until the run rests at a question. A run that rests is rows in the
store, so any process on the store answers it, at any time. `run_sync` is one prompt in a session of its own;
`await_sync` runs an async function of yours, which does all else: answer, resume, go on in a session.

A request takes as long as its run. Keep `Limits.seconds`, after which a run begins no more, well below the
timeout of the server. Where a worker is killed, its run is left in the store for `resume`. Longer runs belong
in a task queue, whose jobs may call `await_sync`, or in an ASGI app such as fastapi_background.py.
"""

from tempfile import TemporaryDirectory

from flask import Blueprint, Flask, Response, current_app, jsonify, make_response, request

from turnwheel import Agent, Approve, Deny, Limits, Result, tool
from turnwheel.effects import CallModel, Decision, SessionBusy, UnknownRequest
from turnwheel.testing import ScriptedModel, calls, says

runs = Blueprint("runs", __name__, url_prefix="/runs")


def the_agent() -> Agent:
    """The agent of this process. Threads share it."""
    agent: Agent = current_app.extensions["turnwheel"]
    return agent


def shown(result: Result) -> Response:
    """The end of a run, or the questions at which it rests."""
    questions = [
        {"id": question.id, "tool": question.tool, "arguments": question.arguments}
        for question in result.waiting
    ]
    return jsonify(session=result.session, text=result.text, reason=result.reason, questions=questions)


@runs.post("")
def begin() -> Response:
    """Run to the end, or to a question."""
    return shown(the_agent().run_sync(request.form["prompt"]))


@runs.post("/<session>/questions/<question>")
def answer(session: str, question: str) -> Response:
    """Answer a question, and go on. Check here that the session belongs to the caller."""
    yes = request.form["approve"] == "yes"
    decision = Approve() if yes else Deny(request.form.get("reason", ""))
    agent = the_agent()
    return shown(agent.await_sync(answered(agent, session, question, decision)))


async def answered(agent: Agent, name: str, question: str, decision: Decision) -> Result:
    """The result of the run that goes on with *decision*."""
    # Opened in here: a session belongs to one event loop, and this one ends with the request.
    async with agent.session(name) as session:
        await session.approve(question, decision)
        return await session.resume()


@runs.errorhandler(UnknownRequest)
@runs.errorhandler(SessionBusy)
def refused(error: Exception) -> Response:
    """The question is answered, or another request is at work on the session."""
    return make_response(str(error), 409)


def create_app(agent: Agent) -> Flask:
    """The app around *agent*, whose store outlives a process."""
    app = Flask(__name__)
    app.extensions["turnwheel"] = agent
    app.register_blueprint(runs)
    return app


# What follows plays the service and its client.


@tool(side_effect="unsafe")
def refund(cents: int) -> str:
    """Refund an amount."""
    return f"refunded {cents} cents"


def main() -> None:
    """Ask for a refund, approve it in a second request, and answer twice."""
    model = ScriptedModel(
        says("We are open on weekdays."), calls(("refund", {"cents": 999})), says("You get 999 cents back.")
    )
    with TemporaryDirectory() as folder:
        agent = Agent(
            model="scripted",
            tools=[refund],
            limits=Limits(seconds=25),
            store=f"{folder}/support.db",
            performers={CallModel: model},
        )
        client = create_app(agent).test_client()
        print(client.post("/runs", data={"prompt": "When are you open?"}).get_json()["text"])
        rests = client.post("/runs", data={"prompt": "Refund order 7"}).get_json()
        (question,) = rests["questions"]
        print(f"may {question['tool']} run with {question['arguments']}?")
        path = f"/runs/{rests['session']}/questions/{question['id']}"
        ended = client.post(path, data={"approve": "yes"}).get_json()
        print(f"{ended['reason']}: {ended['text']}")
        print("a second answer:", client.post(path, data={"approve": "no"}).status_code)
        agent.await_sync(agent.aclose())


if __name__ == "__main__":
    main()
