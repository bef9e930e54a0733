"""Ports: what the roles need from outside, as Protocols. One conformance suite per port, which every adapter passes."""
