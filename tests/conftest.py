"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow or busy machine is no defect of ours: nothing here is judged by the clock.
settings.register_profile("turnwheel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turnwheel")
