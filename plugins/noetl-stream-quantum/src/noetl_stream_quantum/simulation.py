"""The simulation of a circuit with Qiskit Aer, in child processes of a worker: a crash of native code ends its
process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import openqasm3
from openqasm3.ast import IntegerLiteral, Program, QubitDeclaration
from openqasm3.parser import QASM3ParsingError
from qiskit import QuantumCircuit
from qiskit.exceptions import QiskitError
from qiskit.transpiler import generate_preset_pass_manager
from qiskit_aer import AerSimulator
from qiskit_qasm3_import import ConversionError, convert

from noetl_stream.tools.python.job import JobFailed

_UNPARSED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError, ArithmeticError)
"""The exceptions, apart from their own, that the parser and the importer raise for unexpected programs."""


def simulate(program: Mapping[str, Any], *, max_qubits: int, max_memory_mb: int) -> dict[str, Any]:
    """The ``counts`` of a program, its number of ``qubits``, and its ``memory``, if asked for.

    Args:
        program: The fields of :class:`~noetl_stream_quantum.program.Program`.

    Raises:
        JobFailed: ``syntax``, ``invalid_input``, ``not_allowed`` (too many qubits), ``refused`` (by Aer).
    """
    circuit = _bound(_circuit(program["circuit"], max_qubits), program["parameters"])
    # One thread: the number of threads must not change the counts, and many simulations run beside each other.
    simulator = AerSimulator(method=program["method"], max_parallel_threads=1, max_memory_mb=max_memory_mb)
    try:
        lowered = generate_preset_pass_manager(0, target=simulator.target).run(circuit)
        run = simulator.run(lowered, shots=program["shots"], seed_simulator=program["seed"], memory=program["memory"])
        result = run.result()
    except QiskitError as error:
        _refuse(error.message)
    if not result.success:
        _refuse("; ".join({experiment.status for experiment in result.results} or {result.status}))
    if "counts" not in result.data(0):
        raise JobFailed("invalid_input", "circuit: measures nothing; write, as in `bit[2] c; c = measure q;`")
    counts = {bits: int(count) for bits, count in sorted(result.get_counts().items())}
    memory = list(result.get_memory()) if program["memory"] else None
    return {"counts": counts, "qubits": circuit.num_qubits, "memory": memory}


def _circuit(text: str, max_qubits: int) -> QuantumCircuit:
    try:
        parsed = openqasm3.parse(text)
        _check_size(parsed, max_qubits)
        circuit = convert(parsed)
    except QASM3ParsingError as error:
        raise JobFailed("syntax", f"circuit: {_parser_message(error)}") from None
    except ConversionError as error:
        raise JobFailed("syntax", f"circuit: {_placed(error.message)}") from None
    except RecursionError:
        raise JobFailed("syntax", "circuit: nests too deeply") from None
    except _UNPARSED as error:
        raise JobFailed("syntax", f"circuit: is not a program that Qiskit can import ({error})") from None
    if circuit.num_qubits > max_qubits:
        _too_large(circuit.num_qubits, max_qubits)
    return circuit


def _check_size(parsed: Program, max_qubits: int) -> None:
    """Checks the size before registers are allocated, which may have a billion qubits."""
    declared = [statement.size for statement in parsed.statements if isinstance(statement, QubitDeclaration)]
    qubits = sum(size.value if isinstance(size, IntegerLiteral) else 1 for size in declared)
    if qubits > max_qubits:
        _too_large(qubits, max_qubits)


def _too_large(qubits: int, most: int) -> NoReturn:
    limit = f"NOETL_TOOL_QUANTUM, max_qubits: {most}"
    message = f"circuit: has {qubits} qubits, more than the worker's operator allows ({limit})"
    raise JobFailed("not_allowed", message, code="max_qubits")


def _bound(circuit: QuantumCircuit, values: Mapping[str, float]) -> QuantumCircuit:
    """The circuit with values in place of its parameters."""
    names = {parameter.name for parameter in circuit.parameters}
    unknown, missing = sorted(values.keys() - names), sorted(names - values.keys())
    if unknown:
        known = f"it has {', '.join(sorted(names))}" if names else "it has none"
        raise JobFailed("invalid_input", f"parameters.{unknown[0]}: the circuit has no such input; {known}")
    if missing:
        raise JobFailed("invalid_input", f"parameters.{missing[0]}: missing; the circuit declares it as an input")
    return circuit.assign_parameters({parameter: values[parameter.name] for parameter in circuit.parameters})


def _parser_message(error: QASM3ParsingError) -> str:
    if error.args:
        return _placed(str(error.args[0]))
    token = next((getattr(one, "offendingToken", None) for one in getattr(error.__cause__, "args", ())), None)
    if token is None:
        return "does not parse"
    return f"line {token.line}, column {token.column + 1}: does not parse at {token.text!r}"


def _placed(message: str) -> str:
    """The message with its position in words: it begins with ``2,9:`` or ``L2:C9:``, with columns from 0."""
    return re.sub(r"^L?(\d+)[,:]C?(\d+):", lambda at: f"line {at[1]}, column {int(at[2]) + 1}:", message)


def _refuse(reason: str) -> NoReturn:
    raise JobFailed("refused", f"the simulator refused the circuit: {reason}")
