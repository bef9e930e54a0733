select :timers.columns
from noetl.timer
where partition = any(:partitions::int[])
order by due_ms, timer_id
