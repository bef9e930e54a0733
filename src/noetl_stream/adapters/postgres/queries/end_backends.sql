-- Ends connections this process has thrown away and waits for it; no row: none is left, what they had begun is settled.
select pg_terminate_backend(pid, $3)
from pg_stat_activity
where pid = any($1::int[]) and application_name = $2 and pid <> pg_backend_pid()
