"""``kind: quantum`` for noetl-stream: OpenQASM 3 circuits, on Qiskit Aer or on backends that come by entry point."""
