-- Ends connections that this process has discarded, and waits. No row: all have ended, and their transactions with them.
select pg_terminate_backend(pid, :wait_ms)
from pg_stat_activity
where pid = any(:backends::int[]) and application_name = :application_name and pid <> pg_backend_pid()
