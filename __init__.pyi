from .apps import Singleton as Singleton
from .effects import (
    Approve as Approve,
    ApproveAlways as ApproveAlways,
    ChildSpec as ChildSpec,
    Compaction as Compaction,
    Config as Config,
    Deny as Deny,
    DoneReason as DoneReason,
    Hook as Hook,
    HookAnswer as HookAnswer,
    Limits as Limits,
    Loops as Loops,
    ModelSpec as ModelSpec,
    PermissionMode as PermissionMode,
    Policy as Policy,
    Price as Price,
    Retries as Retries,
    Rule as Rule,
    Secrets as Secrets,
    SetMode as SetMode,
    SetModel as SetModel,
    SetThinking as SetThinking,
    ToolSpec as ToolSpec,
    TurnwheelError as TurnwheelError,
)
from .engine import (
    Agent as Agent,
    Handle as Handle,
    Machine as Machine,
    Result as Result,
    Session as Session,
    transition as transition,
)
from .performers import (
    HookCall as HookCall,
    MemoryStore as MemoryStore,
    SQLiteStore as SQLiteStore,
    Tool as Tool,
    ToolContext as ToolContext,
    builtin_tools as builtin_tools,
    hook as hook,
    tool as tool,
)
from .settings import Settings as Settings
from .states import Context as Context
