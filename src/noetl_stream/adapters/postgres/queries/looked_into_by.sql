select execution_id
from noetl.execution
where finished_ms is null and looks_into = :execution_id
order by execution_id
