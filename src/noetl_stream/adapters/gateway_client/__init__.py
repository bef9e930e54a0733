"""The operations over HTTP: the verbs of ``ports.operations``, requested from a gateway."""
