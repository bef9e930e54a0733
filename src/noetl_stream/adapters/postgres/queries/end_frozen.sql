-- Ends transactions that hold partitions whose owners are not heard of, a second after their leases have ended; returns
-- the owners. Without it only the owner itself could end one, which may be stopped. PROTOCOL §5 "Frozen owner".
select distinct frozen.owner
from (
    select distinct p.owner, a.pid
    from noetl.partition p
    join pg_stat_activity a on a.pid = p.backend
    where p.owner <> all(:alive::text[])
      and p.lease_until < now() - interval '1 second'
      and a.datname = current_database()
      and a.xact_start < now() - interval '1 second'
      and exists (
          select from pg_locks l
          where l.pid = a.pid and l.granted and l.relation = 'noetl.partition'::regclass and l.mode = 'RowExclusiveLock'
      )
) as frozen
where pg_terminate_backend(frozen.pid)
