-- Which of these backends work on a statement, and the one that answers this.
select pid
from pg_stat_activity
where pid = pg_backend_pid() or (pid = any(:backends::int[]) and state not like 'idle%')
