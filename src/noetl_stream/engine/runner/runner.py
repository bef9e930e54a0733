"""The command runner: the state machine that makes every decision about one run of one command, without side effects.

The law
-------

1. **The runner decides; a driver acts.** Which task is next, what its policy makes of an outcome, what is retried, how
   many iterations run at once, what waits, when the run ends and with which facts: all of that is decided here and
   nowhere else. Nothing here does IO, reads a clock or draws random numbers. A worker drives a runner with real tools,
   a test with made-up outcomes.

2. **Every input gives outputs.** :meth:`CommandRunner.begin` and each :meth:`CommandRunner.complete` return the reports
   and actions that are due now, in order. Then the runner waits for the next completion, or it is
   :attr:`~CommandRunner.over`.

3. **Outputs** are :class:`ReportFacts`, in the order in which the facts are numbered (PROTOCOL §3 *Numbering*), and
   **actions**, each with an id of its own:

   ======================  ==================================  =========================================
   output                  asks the driver to                  completed with
   ======================  ==================================  =========================================
   :class:`ReportFacts`    report these facts                  nothing
   :class:`RunTask`        run a task once, inputs rendered    its ``Outcome``, or a ``Wait``
   :class:`LoadReference`  make a result readable              ``None``, or an ``ErrorInfo``
   :class:`LoadPage`       read a page of a loop's items       the items, or an ``ErrorInfo``
   :class:`StorePage`      store a page of a loop's items      its ``Reference``, or an ``ErrorInfo``
   :class:`Evaluate`       do heavy work in templates          ``Worked``, or the references read
   :class:`Sleep`          wait                                ``None``
   :class:`Withdraw`       end actions that are under way      ``None``, when they have ended
   ======================  ==================================  =========================================

4. **Each action is completed once**, in any order, unless a :class:`Withdraw` names it. Only parallel loops have
   several under way at once, and never more tasks than the windows of their levels allow.

5. **An illegal input changes nothing.** Beginning twice, completing an action that is not under way, or with a result
   that it does not accept, raises ``IllegalInput``; the run then continues as if nothing had happened.

6. **The same inputs give the same outputs.** The inputs are the arguments of the runner, the completions with their
   order and results, and :meth:`CommandRunner.pause`.

7. **A run ends once**: with the fact that ends the step or iteration, with :class:`StepSuspended`, or with
   :class:`LoopPagedOut`. That is its last output. The last task of a pipeline and the end of the pipeline are one
   report, so that no journal holds a pipeline that has run but not ended.

Reading order: :meth:`CommandRunner._run` is one command from start to end, ``_local_loop`` to ``_iterate`` are the
levels of its loop, ``_pass`` is its pipeline. They are generators that yield actions and are sent the results;
``lanes`` lets those of a parallel level take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from noetl_stream.engine.decide.slots import key_of
from noetl_stream.engine.pipeline import advance_progress, current_task, decide_task, fail_task
from noetl_stream.engine.runner.lanes import (
    Evaluate,
    Lanes,
    LoadPage,
    LoadReference,
    Output,
    RunTask,
    Sleep,
    StorePage,
    Withdraw,
    Work,
    Worked,
)
from noetl_stream.engine.runner.level import Halted, Level, OpenedLevel, Result, open_level, split_items
from noetl_stream.engine.runner.scope import NOTHING_SEEN, OUTSIDE, Iteration, RunScope, iteration_of
from noetl_stream.engine.scope import iteration_names, level_at
from noetl_stream.model import events
from noetl_stream.model.events import Fact, Path, Wait
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Go, LoopProgress, Progress, StepCommand, path_key
from noetl_stream.model.outcome import ErrorInfo, ItemPosition, Outcome, Page, Reference
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import LimitPlan, LoopPlan, Plan, TaskPlan
from noetl_stream.template import ExpressionError, OverBudget, ReferenceNeeded, Scope
from noetl_stream.template.runtime.scope import References

MAX_WAITS_BYTES: Final = 2 * 1024 * 1024
"""The most bytes of all waits of one command, args of called playbooks included: they are one event."""

T = TypeVar("T")


def end_of(command: StepCommand, path: Path, error: ErrorInfo | None = None) -> Fact:
    """The fact that ends the iteration ``path``, or outside loops the step: success, or its error."""
    if path:
        return events.LoopIterationDone(path) if error is None else events.LoopIterationFailed(path, error)
    return events.StepDone(command.step_run_id) if error is None else events.StepFailed(command.step_run_id, error)


class CommandRunner:
    """One run of one command.

    Args:
        go: The continuation: the answer to a claim, or the content of the command of a later segment.
        kinds: The available tool kinds, which shape the outcomes that policies read.
        worker: The name of the worker, as events show it.
        references: The loaded results that are kept by reference; a :class:`LoadReference` fills it.

    Attributes:
        scope: The scope with which a driver renders the inputs of tasks.
    """

    def __init__(
        self, plan: Plan, command: StepCommand, go: Go, *, kinds: Kinds, worker: str, references: References
    ) -> None:
        self.scope = RunScope(plan, command, kinds, references)
        if go.ctx:
            self.scope.patch_ctx(go.ctx)
        self._step = plan.steps[command.step].run_by(paging=command.paging)
        self._command = command
        self._go = go
        self._worker = worker
        self._vars = go.vars or command.vars
        self._is_resumed = bool(go.progress or go.answers or go.waits)
        self._slots = set(go.slots)
        self._waits_bytes = sum(len(codec.encode(wait)) for wait in go.waits.values()) if go.waits else 0
        self._is_pausing = False
        self._new_id = count(1).__next__
        self._lanes = Lanes()
        self._report = self._lanes.report

    def begin(self) -> list[Output]:
        """Starts the run; returns the first reports and actions.

        Raises:
            IllegalInput: the run has begun.
        """
        return self._lanes.begin(self._run())

    def complete(self, action_id: int, result: Any) -> list[Output]:
        """Takes the result of an action; returns the next reports and actions.

        Raises:
            IllegalInput: no such action is under way, or it does not accept this result.
        """
        return self._lanes.complete(action_id, result)

    def pause(self) -> None:
        """Begins no further iteration of a local loop; iterations under way run to their end."""
        self._is_pausing = True

    @property
    def over(self) -> bool:
        """Whether the run has reported its end."""
        return self._lanes.over

    # --- the command --------------------------------------------------------------------------------------------------

    def _run(self) -> Work[None]:
        """Runs the pipeline, or the local loop around it, until it ends or must wait; or pages a loop out."""
        command = self._command
        if command.path:
            self._report(events.LoopIterationStarted(command.path, self._worker))
        elif command.items is None:
            self._report(events.StepStarted(self._worker))
        around = OUTSIDE
        if command.path:
            found = yield from self._enclosing_iteration()
            if isinstance(found, ErrorInfo):
                self._report(end_of(command, command.path, found))
                return
            around = found
        level = None if not command.paging else level_at(self._step, len(command.path))
        if level is not None and level.batch is None:
            self._report((yield from self._page_out(level, self.scope.for_level(around))))
            return
        result = yield from (self._pass(around) if command.items is None else self._local_loop(around))
        if isinstance(result, Halted):
            self._report(events.StepSuspended(result.waits, self._is_pausing and command.items is not None))

    def _enclosing_iteration(self) -> Work[Iteration | ErrorInfo]:
        """The iteration of distributed loops in which the command runs."""
        chain = list(self._command.chain)
        for depth, place in self._command.places.items():
            chain[depth] = item = yield from self._item(place)
            if isinstance(item, ErrorInfo):
                return item
        loop, path = self._step.loop, self._command.path
        assert loop is not None
        return Iteration(path, iteration_names(loop, path, chain, self._command.counts))

    def _page_out(self, level: LoopPlan, scope: Scope) -> Work[Fact]:
        """Evaluates the items of the command's level and stores them, without running the level."""
        path = self._command.path
        opened = yield from self._open(level, scope)
        if isinstance(opened, ErrorInfo):
            return end_of(self._command, path, opened)
        return events.LoopPagedOut(opened.total, list(opened.pages), opened.at_once, path)

    # --- the levels of a local loop (LANGUAGE §6) ---------------------------------------------------------------------

    def _local_loop(self, around: Iteration) -> Work[Result]:
        """Runs the loop over the command's items, from the beginning or from the end of an earlier run or segment."""
        command, before = self._command, self._go.loop or LoopProgress()
        assert command.items is not None
        plan = level_at(self._step, len(command.path))
        at_once = 1 if plan.mode == "sequential" else max(1, command.max_in_flight)
        opened = OpenedLevel(command.items, at_once, command.pages)
        if not self._is_resumed and before == LoopProgress():
            if self._is_pausing:
                return Halted([])
            # The command has its items; only those of inner levels are reported.
            self._report(
                events.LoopStarted(command.step_run_id, opened.total, [], at_once, local=True, path=around.path)
            )
        return (yield from self._level(Level(plan, around, opened, before)))

    def _level(self, level: Level) -> Work[Result]:
        """Runs the remaining iterations of the level and reports its end."""
        around, opened = level.around, level.opened
        if level.broken_by is None:
            left, most = level.remaining_indexes(), min(opened.at_once, opened.total)
            if most <= 1:
                yield from self._take_turns(level, left)
            elif unwanted := (yield [self._take_turns(level, left) for _ in range(most)]):
                yield Withdraw(self._new_id(), unwanted)
        if level.broken_by is not None:
            self._report(end_of(self._command, around.path, level.broken_by))
            return level.broken_by
        if level.is_halted:
            return Halted(level.waits)
        error = level.too_many_failures
        if error is not None:
            self._report(end_of(self._command, around.path, error))
            return error
        counts = opened.total, level.ok, level.failed, opened.total - level.ok - level.failed
        self._report(events.LoopDone(self._command.step_run_id, *counts, around.path, level.failed_leaves))
        return None

    def _take_turns(self, level: Level, left: Iterator[int]) -> Work[bool]:
        """Runs one iteration after another until none is left or one must wait, which then stays in flight.

        Returns:
            Whether a failure has ended the level, and with it all parallel iterations.
        """
        for index in left:
            if self._is_pausing and not self._has_begun(level, index):
                level.is_halted = True
                continue
            result = yield from self._iterate(level, index)
            level.count_result(index, result)
            if level.broken_by is not None:
                return True
            if isinstance(result, Halted):
                return False
        return False

    def _has_begun(self, level: Level, index: int) -> bool:
        """Whether this iteration began in an earlier run or segment."""
        if level.plan.inner is not None:
            return index in level.before.inner
        go, key = self._go, path_key((*level.around.path, index))
        return self._is_resumed and (key in go.progress or key in go.answers or key in go.waits)

    def _iterate(self, level: Level, index: int) -> Work[Result]:
        """Runs one iteration: a pass of the pipeline, or a level of its own."""
        plan, path = level.plan, (*level.around.path, index)
        item = level.opened.item_at(index)
        if isinstance(item, ItemPosition):
            item = yield from self._item(item)
            if isinstance(item, ErrorInfo):
                self._report(events.LoopIterationFailed(path, item))
                level.fail_leaf()
                return item
        iteration = iteration_of(plan, index, item, level.opened.total, level.around)
        if plan.inner is None:
            parked = self._go.waits.get(path_key(path)) if self._go.waits else None
            if parked is not None:
                return Halted([parked])
            self._report(events.LoopIterationStarted(path, self._worker))
            result = yield from self._pass(iteration)
            if isinstance(result, ErrorInfo):
                level.fail_leaf()
            return result
        before = level.before.inner.get(index)
        if before is None:
            self._report(events.LoopIterationStarted(path, self._worker))
        opened = yield from self._open(plan.inner, self.scope.for_level(iteration), before)
        if isinstance(opened, ErrorInfo):
            self._report(events.LoopIterationFailed(path, opened))
            level.fail_leaf()
            return opened
        if before is None:
            run_id, items, pages = self._command.step_run_id, opened.items, list(opened.pages)
            self._report(
                events.LoopStarted(run_id, opened.total, items, opened.at_once, local=True, path=path, pages=pages)
            )
        return (yield from self._level(Level(plan.inner, iteration, opened, before or LoopProgress(), level)))

    def _open(self, level: LoopPlan, scope: Scope, before: LoopProgress | None = None) -> Work[OpenedLevel | ErrorInfo]:
        """Opens a level, with its items; ``before`` is its progress if it has begun.

        Items are stored page by page if they are too many for an event, or if the command asks for it.
        """
        yield Sleep(self._new_id(), 0.0)  # thousands of empty levels may follow one another
        limits = self._command.limits
        opened = yield from self._read(lambda seen: open_level(level, seen, limits, before), scope, "loop")
        if isinstance(opened, ErrorInfo) or before is not None:
            return opened
        cut_up = split_items(opened, limits, paging=self._command.paging)
        if cut_up is None or isinstance(cut_up, ErrorInfo):
            return cut_up or opened
        pages: list[Page] = []
        first = 0
        for items in cut_up:
            reference: Reference | ErrorInfo = yield StorePage(self._new_id(), items)
            if isinstance(reference, ErrorInfo):
                return ErrorInfo(reference.kind, f"loop: {reference.message}")
            pages.append(Page(first, len(items), reference))
            first += len(items)
        return OpenedLevel([], opened.at_once, pages)

    # --- one pass of the pipeline (LANGUAGE §5, §8) -------------------------------------------------------------------

    def _pass(self, iteration: Iteration) -> Work[Result]:
        """Runs the pipeline in ``iteration`` from its progress until it ends or must wait.

        ``vars`` pass from each iteration to the next in sequential loops; other loops cannot set any.
        """
        go, key, path = self._go, path_key(iteration.path) if self._is_resumed else "", iteration.path
        progress = go.progress.get(key) or Progress(vars=self._vars)
        is_answered, answer = key in go.answers, go.answers.get(key)
        while True:
            task = current_task(self._step, progress)
            if progress.delay_s > 0 and not is_answered:
                wait = Wait(path, task.name, delay_s=progress.delay_s)
                if progress.delay_s > self._command.limits.inline_delay_s and self._may_wait(wait):
                    return Halted([wait])
                yield Sleep(self._new_id(), progress.delay_s)
            if task.limit is not None and answer is None and path_key(path) not in self._slots:
                key_found = yield from self._limit_key(task, task.limit, progress, iteration)
                if isinstance(key_found, ErrorInfo):
                    answer = Outcome("error", error=key_found)
                elif key_found not in self._command.held_keys:
                    wait = Wait(path, task.name, key=key_found)
                    if self._may_wait(wait):
                        return Halted([wait])
                    answer = _waits_too_large(task)
            if answer is None:
                self._report(events.TaskStarted(task.name, progress.attempt, path))
            outcome: Outcome | Wait = yield RunTask(self._new_id(), task, progress, iteration, answer)
            is_answered, answer = False, None
            if isinstance(outcome, Wait):
                if self._may_wait(outcome):
                    return Halted([outcome])
                is_answered, answer = True, _waits_too_large(task)
                continue
            if task.policy is None:
                limits = self._command.limits
                fact = decide_task(self._step, progress, outcome, NOTHING_SEEN, seed="", limits=limits, path=path)
            else:
                fact = yield from self._decide(task, progress, iteration, outcome)
            progress = advance_progress(progress, fact)
            if self._slots:
                self._slots.discard(path_key(path))
            if fact.set_ctx:
                self.scope.patch_ctx(fact.set_ctx)
            if fact.set_shared and not path:
                self.scope.share(fact.set_shared)
            if fact.to is None:
                self._vars = progress.vars
                end = end_of(self._command, path, fact.error)
                if self._command.paging and fact.error is None:  # what has run made the rows of a loop
                    made = self.scope.for_inputs(task, progress, iteration)
                    end = yield from self._page_out(level_at(self._step, len(path)), made)
                self._report(fact, end)
                return fact.error
            self._report(fact)

    def _limit_key(
        self, task: TaskPlan, limit: LimitPlan, progress: Progress, iteration: Iteration
    ) -> Work[str | ErrorInfo]:
        """The key of the task's limit for its next attempt, or the error."""

        def read(seen: Scope) -> str | ErrorInfo:
            try:
                return key_of(limit, seen)
            except ExpressionError as error:
                return ErrorInfo("expression_error", f"{reader}: {error}")

        reader = f"the limit of task {task.label}"
        return (yield from self._read(read, self.scope.for_inputs(task, progress, iteration), reader, task.name))

    def _decide(
        self, task: TaskPlan, progress: Progress, iteration: Iteration, outcome: Outcome
    ) -> Work[events.TaskProcessed]:
        """The decision of the task's policy about its outcome."""
        path, limits = iteration.path, self._command.limits
        scope = self.scope.for_policy(task, progress, iteration, outcome)
        seed = f"{self._command.command_id}{path}"
        fact = yield from self._read(
            lambda seen: decide_task(self._step, progress, outcome, seen, seed=seed, limits=limits, path=path),
            scope,
            f"the policy of task {task.label}",
            task.name,
        )
        return fail_task(task, progress, outcome, fact, path) if isinstance(fact, ErrorInfo) else fact

    def _may_wait(self, wait: Wait) -> bool:
        """Whether the command's waits, including ``wait``, still fit into one event; if so, ``wait`` is counted."""
        size = len(codec.encode(wait))
        if self._waits_bytes + size > MAX_WAITS_BYTES:
            return False
        self._waits_bytes += size
        return True

    # --- results kept by reference
    # -------------------------------------------------------------------------------------

    def _read(
        self, read: Callable[[Scope], T], scope: Scope, reader: str, task: str | None = None
    ) -> Work[T | ErrorInfo]:
        """Applies ``read`` to the scope once its references are loaded; returns the result, or the error of ``reader``.
        Work beyond the budget of the scope is left to the driver.
        """
        while True:
            if scope.budget is None:
                found = yield Evaluate(self._new_id(), partial(_work, read, scope))
            else:
                try:
                    found = _work(read, scope)
                except OverBudget:
                    scope = replace(scope, budget=None)
                    continue
            if isinstance(found, Worked):
                value: T = found.value
                return value
            for reference in found:
                lost: ErrorInfo | None = yield LoadReference(self._new_id(), reference)
                if lost is not None:
                    return ErrorInfo(lost.kind, f"{reader}: {lost.message}", task=task)

    def _item(self, place: ItemPosition) -> Work[Any]:
        """The item at this position, or the error if its page cannot be read."""
        page: list[Any] | ErrorInfo = yield LoadPage(self._new_id(), place.page)
        return ErrorInfo(page.kind, f"loop: {page.message}") if isinstance(page, ErrorInfo) else page[place.index]


def _work(read: Callable[[Scope], Any], scope: Scope) -> Worked | list[Reference]:
    """Runs template work: its result, or the references that must be loaded first."""
    try:
        return Worked(read(scope))
    except ReferenceNeeded as needed:
        return [one.reference for one in needed.all if isinstance(one, ReferenceNeeded)]


def _waits_too_large(task: TaskPlan) -> Outcome:
    limit = f"what this command waits for is together larger than {MAX_WAITS_BYTES} bytes"
    hint = "hand smaller args to the playbook, or let fewer iterations of the loop run at once"
    return Outcome("error", error=ErrorInfo("limit_exceeded", f"task {task.name}: {limit}; {hint}"))
