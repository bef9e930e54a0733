"""The verbs of people over HTTP: what ``ports.operations`` promises, asked of a gateway."""
