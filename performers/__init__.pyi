from .base import (
    Clock as Clock,
    PassThroughNotice as PassThroughNotice,
    PerformContext as PerformContext,
    Performer as Performer,
    Performers as Performers,
    SystemClock as SystemClock,
)
from .hooks import (
    HookCall as HookCall,
    HookRunner as HookRunner,
    HostHook as HostHook,
    command_hook as command_hook,
    hook as hook,
)
from .instructions import InstructionReader as InstructionReader
from .logs import FaultLog as FaultLog
from .models.anthropic import AnthropicMessages as AnthropicMessages
from .models.encoding import transcript as transcript
from .models.http import Endpoint as Endpoint, HTTPModel as HTTPModel, HTTPOptions as HTTPOptions
from .models.openai import OpenAIChat as OpenAIChat
from .models.prices import price_of as price_of
from .models.purposes import MakeTitle as MakeTitle, Summarise as Summarise, Summarised as Summarised
from .models.rate_limits import RateLimit as RateLimit
from .models.responses import OpenAIResponses as OpenAIResponses
from .models.router import Models as Models, wire_of as wire_of
from .models.wire import (
    AnswerEnd as AnswerEnd,
    Broken as Broken,
    Complete as Complete,
    HTTPRequest as HTTPRequest,
    Parser as Parser,
    Wire as Wire,
)
from .output import AskAgain as AskAgain, Output as Output, OutputDecoder as OutputDecoder
from .secrets import MemoryVault as MemoryVault, Vault as Vault
from .stores.base import (
    Durability as Durability,
    Entries as Entries,
    SessionInfo as SessionInfo,
    Store as Store,
)
from .stores.memory import MemoryStore as MemoryStore
from .stores.postgres.store import PostgresStore as PostgresStore
from .stores.sqlite import SQLiteStore as SQLiteStore
from .telemetry.otel import OpenTelemetry as OpenTelemetry
from .tools.builtin import builtin_tools as builtin_tools
from .tools.decorator import Tool as Tool, ToolContext as ToolContext, tool as tool
from .tools.returned import ErrorResult as ErrorResult
from .tools.runner import ToolRunner as ToolRunner
