select execution_id, timer_id, partition, due_ms, purpose
from noetl.timer
where execution_id = $1
order by due_ms, timer_id
