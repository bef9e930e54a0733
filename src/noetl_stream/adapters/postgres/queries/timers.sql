select :timers.columns
from noetl.timer
where execution_id = :execution_id
order by due_ms, timer_id
