select execution_id, position, name, source, at_ms, step_run_id, report_id, number, data, cause
from noetl.event
where execution_id = any($1::text[])
order by execution_id, position
