from .areas import (
    CommandHook as CommandHook,
    Debug as Debug,
    Level as Level,
    Preset as Preset,
    Prices as Prices,
    SessionSettings as SessionSettings,
    Telemetry as Telemetry,
)
from .settings import Settings as Settings
