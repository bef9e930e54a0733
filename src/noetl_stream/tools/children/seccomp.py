"""Filters the system calls of this process and of those it starts (``seccomp(2)``), for good.

The filter refuses calls that the other parts of the confinement leave open: changing limits, priority or processors of
other processes of the same user, such as the worker; and parts of the kernel that tasks do not need.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from noetl_stream.tools.children.linux import LIBC, check_result

_ALL: Final = 2**64 - 1


class Argument(NamedTuple):
    """An argument of a call, by its position from 0, that has this value in the bits of ``mask``."""

    position: int
    value: int
    mask: int = _ALL


class RefusedCall(NamedTuple):
    """A system call that fails with ``error``, unless its arguments are as in one of ``unless``."""

    name: str
    numbers: Mapping[str, int]
    unless: Sequence[Sequence[Argument]] = ()
    error: int = errno.EPERM


def _call(
    name: str, x86_64: int | None, aarch64: int | None, *unless: Sequence[Argument], error: int = errno.EPERM
) -> RefusedCall:
    numbers = {"x86_64": x86_64, "aarch64": aarch64}
    return RefusedCall(name, {machine: one for machine, one in numbers.items() if one is not None}, unless, error)


_ITSELF: Final = (Argument(0, 0),)
_OF_USERS_AND_NAMESPACES: Final = 0x7E02_0080
"""The flags of ``clone(2)`` for new namespaces."""
_FAMILIES: Final = (1, 2, 10, 16)
"""The kinds of sockets that tasks may have: Unix, IPv4, IPv6, and netlink, by which programs list interfaces."""

REFUSED: Final = (
    _call("prlimit64", 302, 261, _ITSELF, (Argument(2, 0),)),  # its own, or only reading
    _call("sched_setparam", 142, 118, _ITSELF),
    _call("sched_setscheduler", 144, 119, _ITSELF),
    _call("sched_setaffinity", 203, 122, _ITSELF),
    _call("sched_setattr", 314, 274, _ITSELF),
    _call("setpriority", 141, 140, (Argument(0, 0), Argument(1, 0))),
    _call("ioprio_set", 251, 30, (Argument(0, 1), Argument(1, 0))),
    _call("migrate_pages", 256, 238, _ITSELF),
    _call("move_pages", 279, 239, _ITSELF),
    # Memory and descriptors of other processes.
    _call("ptrace", 101, 117),
    _call("process_vm_readv", 310, 270),
    _call("process_vm_writev", 311, 271),
    _call("pidfd_getfd", 438, 438),
    _call("kcmp", 312, 272),
    # Keys: the kernel keeps some by user.
    _call("add_key", 248, 217),
    _call("request_key", 249, 218),
    _call("keyctl", 250, 219),
    # Namespaces and mounts.
    _call("clone", 56, 220, (Argument(0, 0, _OF_USERS_AND_NAMESPACES),)),
    _call("clone3", 435, 435, error=errno.ENOSYS),  # its flags cannot be examined: the C library falls back on clone
    _call("unshare", 272, 97),
    _call("setns", 308, 268),
    _call("mount", 165, 40),
    _call("umount2", 166, 39),
    _call("pivot_root", 155, 41),
    _call("chroot", 161, 51),
    _call("open_tree", 428, 428),
    _call("move_mount", 429, 429),
    _call("fsopen", 430, 430),
    _call("fsconfig", 431, 431),
    _call("fsmount", 432, 432),
    _call("fspick", 433, 433),
    _call("mount_setattr", 442, 442),
    _call("open_tree_attr", 467, 467),
    _call("name_to_handle_at", 303, 264),
    _call("open_by_handle_at", 304, 265),
    # Large parts of the kernel that tasks do not need, with a history of defects.
    _call("io_uring_setup", 425, 425, error=errno.ENOSYS),
    _call("io_uring_enter", 426, 426, error=errno.ENOSYS),
    _call("io_uring_register", 427, 427, error=errno.ENOSYS),
    _call("userfaultfd", 323, 282),
    _call("bpf", 321, 280),
    _call("perf_event_open", 298, 241),
    _call("fanotify_init", 300, 262),
    _call("socket", 41, 198, *((Argument(0, family, 0xFFFF_FFFF),) for family in _FAMILIES), error=errno.EAFNOSUPPORT),
    _call("personality", 135, 92, (Argument(0, 0, 0xFFFF_FFFF),), (Argument(0, 0xFFFF_FFFF, 0xFFFF_FFFF),)),
    _call("modify_ldt", 154, None),
    # The machine.
    _call("iopl", 172, None),
    _call("ioperm", 173, None),
    _call("kexec_load", 246, 104),
    _call("kexec_file_load", 320, 294),
    _call("init_module", 175, 105),
    _call("finit_module", 313, 273),
    _call("delete_module", 176, 106),
    _call("swapon", 167, 224),
    _call("swapoff", 168, 225),
    _call("reboot", 169, 142),
    _call("acct", 163, 89),
    _call("quotactl", 179, 60),
    _call("quotactl_fd", 443, 443),
    _call("settimeofday", 164, 170),
    _call("clock_settime", 227, 112),
    _call("adjtimex", 159, 171),
    _call("clock_adjtime", 305, 266),
    _call("sethostname", 170, 161),
    _call("setdomainname", 171, 162),
    _call("syslog", 103, 116),
    _call("vhangup", 153, 58),
)

TO_OTHERS: Final = (
    _call("fork", 57, None),
    _call("vfork", 58, None),
    _call("clone", 56, 220),
    _call("execve", 59, 221),
    _call("execveat", 322, 281),
    _call("kill", 62, 129),
    _call("tkill", 200, 130),
    _call("tgkill", 234, 131),
    _call("rt_sigqueueinfo", 129, 138),
    _call("rt_tgsigqueueinfo", 297, 240),
    _call("pidfd_open", 434, 434),
    _call("pidfd_send_signal", 424, 424),
    _call("socket", 41, 198),
    _call("socketpair", 53, 199),
    _call("shmget", 29, 194),
    _call("msgget", 68, 186),
    _call("mq_open", 240, 180),
)
"""The calls by which a process starts others, signals them or talks to them; threads are among those it starts."""

_SHARED, _ANONYMOUS = 0x01, 0x20
_SMALL_BYTES: Final = 8192


def uncounted_memory(largest: int) -> tuple[RefusedCall, ...]:
    """Returns the calls for memory that neither a limit of the process nor a folder in memory counts.

    Programs share small pieces with the processes that they fork: up to about ``largest`` bytes, or a page.
    """
    most = max(_SMALL_BYTES, 1 << max(0, largest.bit_length() - 1))
    allowed = ((Argument(1, 0, _ALL & ~(most - 1)),), (Argument(3, 0, _SHARED),), (Argument(3, 0, _ANONYMOUS),))
    return (
        _call("mmap", 9, 222, *allowed),
        _call("memfd_create", 319, 279, error=errno.ENOSYS),
        _call("memfd_secret", 447, 447, error=errno.ENOSYS),
        _call("shmget", 29, 194),
    )


_AUDIT_ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_CALLS: Final = 0x4000_0000
"""The number from which calls of ``x86_64`` are those of its second, 32-bit interface."""

_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
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


def refuse_calls(more: Sequence[RefusedCall] = ()) -> None:
    """Refuses the system calls of :data:`REFUSED` and ``more``, and all of other architectures.

    New privileges must be refused before.

    Raises:
        OSError: The kernel refuses it.
    """
    assert LIBC is not None
    code = _filter(os.uname().machine, (*more, *REFUSED))
    program = _Program(len(code) // 8, code)
    check_result(LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program), 0, 0))


def _filter(machine: str, refused: Sequence[RefusedCall]) -> bytes:
    refuse = _refusal(errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_IF_EQUAL, _AUDIT_ARCHITECTURES[machine], 1, 0),
        refuse,
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_IF_AT_LEAST, _X32_CALLS, 0, 1),
        refuse,
    ]
    for call in refused:
        if machine in call.numbers:
            checks = [check for arguments in call.unless for check in _allowed_with(arguments)]
            checks.append(_refusal(call.error))
            code += [_instruction(_JUMP_IF_EQUAL, call.numbers[machine], 0, len(checks)), *checks]
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def _refusal(error: int) -> bytes:
    return _instruction(_RETURN, _FAIL | error)


def _allowed_with(arguments: Sequence[Argument]) -> list[bytes]:
    """Builds instructions that allow a call with these arguments, and otherwise continue after them."""
    words = [
        (_ARGUMENTS_AT + 8 * argument.position + at, argument.value >> (8 * at) & _WORD, mask)
        for argument in arguments
        for at in (0, 4)  # both architectures are little-endian
        if (mask := argument.mask >> (8 * at) & _WORD)
    ]
    code = []
    for number, (at, value, mask) in enumerate(words):
        left = 3 * (len(words) - number - 1) + 1
        code += [_instruction(_LOAD, at), _instruction(_AND, mask), _instruction(_JUMP_IF_EQUAL, value, 0, left)]
    return [*code, _instruction(_RETURN, _ALLOW)]


def _instruction(operation: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, operand)
