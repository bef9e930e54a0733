-- Executions in the order of their start, with how and when each ended.
select execution_id, path, status, finished_ms
from noetl.execution
where execution_id > :after and execution_id < :before
order by execution_id
limit :limit
