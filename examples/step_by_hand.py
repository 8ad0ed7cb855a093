"""A whole run by hand: no model, no tool, no event loop."""

from turnwheel import Config, Machine, ModelSpec, ToolSpec
from turnwheel.effects import CallPiece, ModelFinished, TextPiece, ToolFinished, Usage

config = Config(model=ModelSpec("me"), tools=(ToolSpec("count", side_effect="read_only"),))
machine = Machine.start(config, "How long is README.md?")
used = Usage(input=20, output=9)
call = CallPiece(0, "call_0", "count", '{"path": "README.md"}')
print(machine.advance()[3], machine, sep="\n")
print(machine.advance(ModelFinished(at=1, request="run-1", stop="tool_use", usage=used, pieces=(call,)))[4])
machine.advance(ToolFinished(at=2, request="run-3", content="1,024 words"))
text = (TextPiece("It has 1,024 words."),)
machine.advance(ModelFinished(at=3, request="run-4", stop="end_turn", usage=used, pieces=text))
print(machine.memory.history[-1].text, machine.state, sep="\n")
