"""Namespaces of Linux (``namespaces(7)``): a process does not see what is outside of its own."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from typing import Final

from noetl_stream.tools.children.linux import LIBC, check_result, hide_process, show_process, write_at_once

MOUNTS: Final = 0x0002_0000
IPC: Final = 0x0800_0000
USERS: Final = 0x1000_0000
PROCESSES: Final = 0x2000_0000
NETWORK: Final = 0x4000_0000

_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_SET_CHILD_THREAD_ID, _CLEAR_CHILD_THREAD_ID = 0x0100_0000, 0x0020_0000
_GET_THREAD_ID_ADDRESS: Final = 40
_INTERFACE_FLAGS: Final = struct.Struct("16sh22x")
_SET_INTERFACE_FLAGS: Final = 0x8914
_INTERFACE_IS_UP: Final = 1
PROXY_PORT: Final = 3128
"""The port of the proxy in each network namespace that has one."""
_MOST_WAITING: Final = 128


def fork_into(namespaces: int) -> int:
    """Forks this process, which has one thread, like :func:`os.fork`, with the child in new namespaces.

    In new :data:`PROCESSES` the child is process 1: when it ends, everything that it has started is killed.

    Raises:
        OSError: The kernel refuses it.
    """
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    process_id = _clone(namespaces)
    if process_id == 0:
        api.PyOS_AfterFork_Child()
    else:
        api.PyOS_AfterFork_Parent()
        check_result(process_id)
    return process_id


def _clone(namespaces: int) -> int:
    # Like fork() of the C library, so that it knows the child's thread by its id.
    machine = os.uname().machine
    if LIBC is None or machine not in _CLONE:
        ctypes.set_errno(38)
        return -1
    thread_id, nothing = _thread_id_address(), ctypes.c_void_p(None)
    flags = namespaces | signal.SIGCHLD | (_SET_CHILD_THREAD_ID | _CLEAR_CHILD_THREAD_ID if thread_id.value else 0)
    last = (thread_id, nothing) if machine == "x86_64" else (nothing, thread_id)
    result: int = LIBC.syscall(ctypes.c_long(_CLONE[machine]), ctypes.c_ulong(flags), nothing, nothing, *last)
    return result


def _thread_id_address() -> ctypes.c_void_p:
    assert LIBC is not None
    address = ctypes.c_void_p(None)
    LIBC.prctl(_GET_THREAD_ID_ADDRESS, ctypes.byref(address), 0, 0, 0)
    return address


def enter(namespaces: int) -> None:
    """Moves this process, which has one thread, into new namespaces.

    Raises:
        OSError: The kernel refuses it.
    """
    if LIBC is None:
        raise OSError("there are no namespaces")
    check_result(LIBC.unshare(ctypes.c_int(namespaces)))


def enter_user_namespace(user: int, processes: int) -> None:
    """Moves this process into a user namespace of its own, in which its user has the number ``user``.

    It has all capabilities there, and none outside, whoever its user is. ``processes`` is a descriptor of ``/proc`` in
    the namespace of the parent, with writable files.

    Raises:
        OSError: The kernel refuses it.
    """
    own_user, own_group = os.geteuid(), os.getegid()
    enter(USERS)
    show_process()  # the files belong to root while it is hidden
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {own_user} 1"),
            ("gid_map", f"{user if own_group == own_user else own_group} {own_group} 1"),
        ):
            write_at_once(f"self/{name}", text, processes)
    finally:
        hide_process()


def start_loopback() -> None:
    """Starts the loopback interface of this network namespace, through which programs talk to themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_INTERFACE_FLAGS, _INTERFACE_FLAGS.pack(b"lo", _INTERFACE_IS_UP))


def send_listener(channel: int) -> None:
    """Starts the loopback interface of this network namespace, and sends a socket that listens on :data:`PROXY_PORT`.

    Args:
        channel: The descriptor of the socket through which to send it, which is then closed.
    """
    start_loopback()
    with (
        socket.socket(fileno=channel) as sending,
        socket.create_server(("127.0.0.1", PROXY_PORT), backlog=_MOST_WAITING) as listener,
    ):
        socket.send_fds(sending, [b"."], [listener.fileno()])
