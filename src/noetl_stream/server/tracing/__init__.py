"""Makes OpenTelemetry spans of what is committed."""
