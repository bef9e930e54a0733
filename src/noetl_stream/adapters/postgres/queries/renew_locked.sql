with mine as materialized (
    select p.id
    from noetl.partition p
    join unnest(:partition_ids::int[], :epochs::bigint[]) as v (id, epoch)
        on p.id = v.id and p.epoch = v.epoch and p.owner = :owner
    order by p.id
    for update of p
)
update noetl.partition p
set lease_until = clock_timestamp() + make_interval(secs => :lease_s),
    backend = coalesce(:backend, p.backend),
    behind = :behind
from mine
where p.id = mine.id
returning p.id
