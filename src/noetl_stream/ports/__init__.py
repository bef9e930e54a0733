"""Ports: the outside needs of the roles, as Protocols. Each port has one conformance suite for all adapters."""
