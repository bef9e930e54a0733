select position, name, source, at_ms, step_run_id, report_id, number, data, cause
from noetl.event
where execution_id = $1 and position > $2
order by position
limit $3
