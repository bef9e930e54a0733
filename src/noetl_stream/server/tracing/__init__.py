"""Makes OpenTelemetry spans of committed journals."""
