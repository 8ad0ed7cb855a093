"""Spans and metrics of runs, by OpenTelemetry."""
