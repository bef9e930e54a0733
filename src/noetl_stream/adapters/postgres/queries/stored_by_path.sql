select path, sum(stored_bytes)::bigint
from noetl.execution
where stored_bytes > 0
group by path
