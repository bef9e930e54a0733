-- Ends connections this process has thrown away and waits for it; no row: none is left, what they had begun is settled.
select pg_terminate_backend(pid, :wait_ms)
from pg_stat_activity
where pid = any(:backends::int[]) and application_name = :application_name and pid <> pg_backend_pid()
