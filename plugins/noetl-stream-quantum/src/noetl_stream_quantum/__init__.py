"""``kind: quantum`` for noetl-stream: OpenQASM 3 circuits, on Qiskit Aer or on backends installed as entry points."""
