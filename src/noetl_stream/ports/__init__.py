"""What the roles need from outside, as Protocols. Each has one conformance suite that every adapter passes."""
