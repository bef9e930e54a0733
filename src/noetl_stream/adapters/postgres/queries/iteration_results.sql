select position, name, source, at_ms, step_run_id, report_id, number, data, cause
from noetl.event
where execution_id = $1
  and step_run_id = $2
  and name in ('task.processed', 'loop.started', 'loop.iteration.done', 'loop.iteration.failed', 'loop.done')
order by position
