"""Facts: what happened in an execution. Past tense, immutable, one struct a dotted event name (LANGUAGE §13).

A fact carries only what cannot be derived; the envelope people read (``model/envelope.py``) is composed from the fact
and its journal row. Lists of iteration indices are ``path``: ``()`` outside loops, ``(3,)`` in the fourth iteration.
"""

from __future__ import annotations

from noetl_stream.model.events.client import (
    CancelRequested,
    ClientRequest,
    CtxPatched,
    ExecutionRequested,
    PauseRequested,
    Rerun,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.events.parts import (
    ChildCall,
    ChildOrder,
    EvaluatedGuard,
    Fact,
    Parent,
    Path,
    SharedOperation,
    SharedValue,
    Source,
    TimerPurpose,
    Token,
    Wait,
)
from noetl_stream.model.events.rerun import (
    ExecutionReused,
    LoopCounts,
    RerunRefused,
    ReusedFact,
    StepPatched,
    StepReused,
)
from noetl_stream.model.events.server import (
    ChildFinished,
    ChildOrdered,
    ChildRequested,
    CtxOverwrote,
    ExecutionEvaluated,
    ExecutionFailing,
    ExecutionFinished,
    ExecutionPaused,
    ExecutionResumed,
    ExecutionStarted,
    NextEvaluated,
    PlaybookProcessed,
    ReferenceAwaited,
    ReferenceLost,
    ReferenceResolved,
    StepCancelled,
    StepResumed,
    StepScheduled,
    TimerFired,
    TimerSet,
    TokenAbsorbed,
    TokenClaimed,
    TokenDiscarded,
    TokenEnqueued,
    TokenHeld,
    TokenJoined,
)
from noetl_stream.model.events.worker import (
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopPaged,
    LoopPagedOut,
    LoopStarted,
    StepClaimed,
    StepDone,
    StepFailed,
    StepStarted,
    StepSuspended,
    TaskProcessed,
    TaskStarted,
)

InterventionFact = CtxPatched | TokenInjected | SignalReceived | CancelRequested | PauseRequested | ResumeRequested
ClientFact = ExecutionRequested | InterventionFact
InboxFact = ExecutionRequested | CancelRequested | PauseRequested | ResumeRequested | ChildFinished
AnyFact = (
    ExecutionRequested
    | CtxPatched
    | TokenInjected
    | SignalReceived
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | TokenJoined
    | TokenAbsorbed
    | StepResumed
    | StepSuspended
    | TimerSet
    | TimerFired
    | ChildRequested
    | ChildOrdered
    | ChildFinished
    | ReferenceAwaited
    | ReferenceResolved
    | ReferenceLost
    | ExecutionPaused
    | ExecutionResumed
    | LoopPaged
    | LoopPagedOut
    | CtxOverwrote
    | ExecutionReused
    | RerunRefused
    | ExecutionEvaluated
    | ExecutionStarted
    | TokenEnqueued
    | TokenHeld
    | TokenClaimed
    | TokenDiscarded
    | StepScheduled
    | StepCancelled
    | ExecutionFailing
    | NextEvaluated
    | ExecutionFinished
    | PlaybookProcessed
    | StepClaimed
    | StepStarted
    | TaskStarted
    | TaskProcessed
    | LoopStarted
    | LoopIterationStarted
    | LoopIterationDone
    | LoopIterationFailed
    | LoopDone
    | StepDone
    | StepFailed
)

__all__ = [
    "AnyFact",
    "CancelRequested",
    "ChildCall",
    "ChildFinished",
    "ChildOrder",
    "ChildOrdered",
    "ChildRequested",
    "ClientFact",
    "ClientRequest",
    "CtxOverwrote",
    "CtxPatched",
    "EvaluatedGuard",
    "ExecutionEvaluated",
    "ExecutionFailing",
    "ExecutionFinished",
    "ExecutionPaused",
    "ExecutionRequested",
    "ExecutionResumed",
    "ExecutionReused",
    "ExecutionStarted",
    "Fact",
    "InboxFact",
    "InterventionFact",
    "LoopCounts",
    "LoopDone",
    "LoopIterationDone",
    "LoopIterationFailed",
    "LoopIterationStarted",
    "LoopPaged",
    "LoopPagedOut",
    "LoopStarted",
    "NextEvaluated",
    "Parent",
    "Path",
    "PauseRequested",
    "PlaybookProcessed",
    "ReferenceAwaited",
    "ReferenceLost",
    "ReferenceResolved",
    "Rerun",
    "RerunRefused",
    "ResumeRequested",
    "ReusedFact",
    "SharedOperation",
    "SharedValue",
    "SignalReceived",
    "Source",
    "StepCancelled",
    "StepClaimed",
    "StepDone",
    "StepFailed",
    "StepPatched",
    "StepResumed",
    "StepReused",
    "StepScheduled",
    "StepStarted",
    "StepSuspended",
    "TaskProcessed",
    "TaskStarted",
    "TimerFired",
    "TimerPurpose",
    "TimerSet",
    "Token",
    "TokenAbsorbed",
    "TokenClaimed",
    "TokenDiscarded",
    "TokenEnqueued",
    "TokenHeld",
    "TokenInjected",
    "TokenJoined",
    "Wait",
]
