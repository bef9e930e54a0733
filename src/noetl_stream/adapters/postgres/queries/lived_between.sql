-- Executions that had started at the end of a time, and had not ended at its beginning.
select x.execution_id, x.partition
from noetl.execution x
where x.started_ms <= :to_ms and (x.finished_ms is null or x.finished_ms >= :from_ms)
order by x.execution_id
