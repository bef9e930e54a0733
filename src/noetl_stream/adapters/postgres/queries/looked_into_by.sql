select execution_id
from noetl.execution
where finished_ms is null and looks_into = $1
order by execution_id
