-- Takes partitions nobody holds. A lease further off than any lease can be was written by a broken clock: it counts as none.
with free as materialized (
    select id
    from noetl.partition
    where owner is null
       or given_back
       or lease_until < now()
       or lease_until > now() + 2 * make_interval(secs => $2)
    order by id
    limit $3
    for update skip locked
)
update noetl.partition p
set epoch = p.epoch + 1,
    owner = $1,
    backend = pg_backend_pid(),
    lease_until = now() + make_interval(secs => $2),
    crashes = p.crashes + case when p.given_back then 0 else 1 end,
    given_back = false
from free
where p.id = free.id
returning p.id, p.epoch, p.tick, p.published_tick, p.last_seq, p.last_ms, p.crashes, p.generation
