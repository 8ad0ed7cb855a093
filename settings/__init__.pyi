from .areas import (
    CommandHook as CommandHook,
    Debug as Debug,
    Level as Level,
    Preset as Preset,
    Prices as Prices,
    SessionSettings as SessionSettings,
)
from .settings import Settings as Settings
