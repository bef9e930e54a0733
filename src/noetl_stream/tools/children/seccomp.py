"""Filters the system calls of this process and of those it starts (``seccomp(2)``), for good.

The filter refuses calls that the other parts of the confinement leave open: changing limits, priority or processors of
other processes of the same user, such as the worker.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from noetl_stream.tools.children.linux import LIBC, check_result

Arguments = Mapping[int, int]
"""Values of arguments of a system call, by their position from 0."""


class RefusedCall(NamedTuple):
    """A system call that fails with ``EPERM``, unless its arguments are as in one of ``unless``."""

    name: str
    numbers: Mapping[str, int]
    unless: Sequence[Arguments] = ()


_ITSELF: Final = ({0: 0},)

REFUSED: Final = (
    RefusedCall("prlimit64", {"x86_64": 302, "aarch64": 261}, ({0: 0}, {2: 0})),  # its own, or only reading
    RefusedCall("sched_setparam", {"x86_64": 142, "aarch64": 118}, _ITSELF),
    RefusedCall("sched_setscheduler", {"x86_64": 144, "aarch64": 119}, _ITSELF),
    RefusedCall("sched_setaffinity", {"x86_64": 203, "aarch64": 122}, _ITSELF),
    RefusedCall("sched_setattr", {"x86_64": 314, "aarch64": 274}, _ITSELF),
    RefusedCall("setpriority", {"x86_64": 141, "aarch64": 140}, ({0: 0, 1: 0},)),
    RefusedCall("ioprio_set", {"x86_64": 251, "aarch64": 30}, ({0: 1, 1: 0},)),
)

_AUDIT_ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_CALLS: Final = 0x4000_0000
"""The number from which calls of ``x86_64`` are those of its second, 32-bit interface."""

_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW: Final = 0x7FFF_0000
_FAIL: Final = 0x0005_0000
_WORD: Final = 0xFFFF_FFFF


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filters_calls() -> bool:
    """Returns whether this kernel filters the system calls of programs for this machine."""
    if LIBC is None or os.uname().machine not in _AUDIT_ARCHITECTURES:
        return False
    LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), None, 0, 0)  # fails with EFAULT where it has filters
    return ctypes.get_errno() == errno.EFAULT


def refuse_calls() -> None:
    """Refuses the system calls of :data:`REFUSED`, and all of other architectures; refuse new privileges before.

    Raises:
        OSError: The kernel refuses it.
    """
    assert LIBC is not None
    code = _filter(os.uname().machine)
    program = _Program(len(code) // 8, code)
    check_result(LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program), 0, 0))


def _filter(machine: str) -> bytes:
    refuse = _instruction(_RETURN, _FAIL | errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_IF_EQUAL, _AUDIT_ARCHITECTURES[machine], 1, 0),
        refuse,
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_IF_AT_LEAST, _X32_CALLS, 0, 1),
        refuse,
    ]
    for call in REFUSED:
        checks = [check for arguments in call.unless for check in _allowed_with(arguments)] + [refuse]
        code += [_instruction(_JUMP_IF_EQUAL, call.numbers[machine], 0, len(checks)), *checks]
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def _allowed_with(arguments: Arguments) -> list[bytes]:
    """Builds instructions that allow a call with these arguments, and go on behind for others."""
    words = [
        (_ARGUMENTS_AT + 8 * position + at, value >> (8 * at) & _WORD)
        for position, value in arguments.items()
        for at in (0, 4)  # both architectures are little-endian
    ]
    code = []
    for number, (at, value) in enumerate(words):
        left = 2 * (len(words) - number - 1) + 1
        code += [_instruction(_LOAD, at), _instruction(_JUMP_IF_EQUAL, value, 0, left)]
    return [*code, _instruction(_RETURN, _ALLOW)]


def _instruction(operation: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, operand)
