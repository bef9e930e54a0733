-- The conditions are put in by the reader: a filter that may be null would keep its index from being used.
select execution_id, status, path, version, started_ms, finished_ms
from noetl.execution
where {conditions}
order by execution_id desc
limit $1
