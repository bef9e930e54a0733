"""Adapters in memory of ports that only gateways, operators and telemetry use."""
