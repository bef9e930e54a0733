select status, count(*)
from noetl.execution
where finished_ms is null
group by status
