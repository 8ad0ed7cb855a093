from .ag_ui import AgUiEvents as AgUiEvents
from .agent_events import AgentEvents as AgentEvents
from .json_events import Events as Events, JsonEvent as JsonEvent, to_sse as to_sse
from .posted import (
    ClientInput as ClientInput,
    ClientPost as ClientPost,
    posted_to_ag_ui as posted_to_ag_ui,
    posted_to_ui_messages as posted_to_ui_messages,
)
from .run_view import Projection as Projection
from .sdk import SdkMessages as SdkMessages
from .sse import SseEvents as SseEvents
from .turns import TurnEvents as TurnEvents
from .ui_messages import UiMessageChunks as UiMessageChunks
