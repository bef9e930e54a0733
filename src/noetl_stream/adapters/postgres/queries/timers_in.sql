select :timers.columns
from noetl.timer
where partition = any(:partition_ids::int[])
order by due_ms, timer_id
