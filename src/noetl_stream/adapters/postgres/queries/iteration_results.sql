select :stored_event.columns
from noetl.event
where execution_id = :execution_id
  and step_run_id = :step_run_id
  and name in ('task.processed', 'loop.started', 'loop.iteration.done', 'loop.iteration.failed', 'loop.done')
order by position
