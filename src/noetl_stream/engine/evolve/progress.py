"""Pipeline progress after a recorded task: one fold, used by the server and by the worker that runs it."""

from __future__ import annotations

from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import Outcome
from noetl_stream.playbook.vocabulary.names import result_name


def advance_progress(progress: Progress, fact: TaskProcessed) -> Progress:
    """``progress`` after ``fact``: patches applied, outcome stored, directive followed (LANGUAGE §5).

    ``task`` is the next task, ``None`` once the pipeline has ended; ``runs`` counts all task runs, with retries.
    """
    return Progress(
        task=fact.to,
        attempt=fact.attempt + 1 if fact.do == "retry" else 1,
        delay_s=fact.delay_s,
        runs=progress.runs + 1,
        previous=fact.task if result_name(fact.task) == fact.task else progress.previous,
        iter={**progress.iter, **fact.set_iter} if fact.set_iter else progress.iter,
        vars={**progress.vars, **fact.set_vars} if fact.set_vars else progress.vars,
        ctx={**progress.ctx, **fact.set_ctx} if fact.set_ctx else progress.ctx,
        results=results_after(progress, fact.task, fact.outcome),
    )


def results_after(progress: Progress, task: str, outcome: Outcome) -> dict[str, Outcome]:
    """The results by name after a run of ``task``.

    A generated task stores no result of its own: where a branch or round of a construct ends, the construct takes the
    result of the task that ran before (LANGUAGE §12 *Sugar*).
    """
    name = result_name(task)
    kept = outcome if name == task else progress.results.get(progress.previous or "")
    return progress.results if name is None or kept is None else {**progress.results, name: kept}
