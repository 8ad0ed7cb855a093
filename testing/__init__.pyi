from . import store_contract as store_contract, wire_rules as wire_rules
from .clocks import AutoClock as AutoClock, ManualClock as ManualClock
from .harness import (
    CHILDREN as CHILDREN,
    TOOLS as TOOLS,
    MachineHarness as MachineHarness,
    call as call,
    config as config,
)
from .scenario_files import ScenarioFile as ScenarioFile, check_scenario as check_scenario
from .scenarios import (
    Scenario as Scenario,
    ScenarioError as ScenarioError,
    read_scenario as read_scenario,
    rewritten as rewritten,
)
from .scenarios_world import ScenarioWorld as ScenarioWorld, play_scenario as play_scenario
from .scripted import (
    Reply as Reply,
    ScriptedModel as ScriptedModel,
    ScriptedTools as ScriptedTools,
    ScriptEnded as ScriptEnded,
    ScriptMismatch as ScriptMismatch,
    ScriptUnfinished as ScriptUnfinished,
    calls as calls,
    fails as fails,
    says as says,
    stalls as stalls,
)
from .state_fixtures import PLACES as PLACES, run_at as run_at
from .store_parts import BrokenStore as BrokenStore, Check as Check, Lasts as Lasts
from .stores import FaultyStore as FaultyStore, StoreOver as StoreOver
