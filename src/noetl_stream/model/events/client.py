"""Facts by clients: what is asked of an execution (LANGUAGE §13)."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from noetl_stream.model.events.parts import Fact, Kind, Parent


class Rerun(msgspec.Struct, frozen=True, omit_defaults=True):
    """From where an ended execution, ``of``, is to be run again (LANGUAGE §9 *Rerun*).

    The last run of ``step``, or the one that is named; neither of both: a retry of the run that failed. ``args`` take
    the place of those of its token, ``None`` keeps them.
    """

    of: str
    step: str | None = None
    step_run_id: str | None = None
    args: dict[str, Any] | None = None


class ExecutionRequested(Fact, frozen=True, tag="execution.requested"):
    """Someone asks for a run of the playbook with this digest; ``parent`` is set where another execution does.

    ``rerun``: not from its beginning, but reusing what another run of it did; ``workload`` is that one's then.
    """

    kind: ClassVar = Kind("playbook")

    request_id: str
    digest: str
    path: str = ""
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    principal: str = ""
    trace_id: str = ""
    parent: Parent | None = None
    rerun: Rerun | None = None
    reason: str = ""
    correlation_id: str = ""


class ClientRequest(Fact, frozen=True):
    """Base of what someone asks of an execution that exists already."""

    request_id: str
    principal: str = ""
    reason: str = ""
    correlation_id: str = ""


class CtxPatched(ClientRequest, frozen=True, tag="ctx.patched"):
    """Keys of ``ctx`` set from outside (LANGUAGE §9): whole ones, or deep with ``null`` deleting if ``merge``.

    ``expected_version`` refuses the patch unless ``ctx`` last changed at that position.
    """

    kind: ClassVar = Kind("ctx", "success")

    patch: dict[str, Any] = {}
    merge: bool = False
    expected_version: int | None = None


class TokenInjected(ClientRequest, frozen=True, tag="token.injected"):
    kind: ClassVar = Kind("token", through_halt=True)

    step: str = ""
    args: dict[str, Any] = {}


class SignalReceived(ClientRequest, frozen=True, tag="signal.received"):
    kind: ClassVar = Kind("workflow", "success")

    signal: str = ""
    payload: Any = None


class CancelRequested(ClientRequest, frozen=True, tag="execution.cancel_requested"):
    """The execution is to end; from here on nothing is routed, retried or patched (LANGUAGE §9)."""

    kind: ClassVar = Kind("workflow", through_halt=True)


class PauseRequested(ClientRequest, frozen=True, tag="execution.pause_requested"):
    """No command is to be issued until ``execution.resume_requested``."""

    kind: ClassVar = Kind("workflow", through_halt=True)


class ResumeRequested(ClientRequest, frozen=True, tag="execution.resume_requested"):
    """Goes on after a pause."""

    kind: ClassVar = Kind("workflow", through_halt=True)


InterventionFact = CtxPatched | TokenInjected | SignalReceived | CancelRequested | PauseRequested | ResumeRequested
"""What people ask of an execution that exists."""

ClientFact = ExecutionRequested | InterventionFact
