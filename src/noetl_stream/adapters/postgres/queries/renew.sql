-- Rows that are locked, by a tick or a takeover, are left alone. PROTOCOL §7 "Renewal apart from work".
with held as materialized (
    select p.id, p.epoch
    from noetl.partition p
    join unnest(:partition_ids::int[], :epochs::bigint[]) as v (id, epoch)
        on p.id = v.id and p.epoch = v.epoch and p.owner = :owner
),
free as materialized (
    select p.id
    from noetl.partition p
    join held on p.id = held.id and p.epoch = held.epoch and p.owner = :owner
    order by p.id
    for update of p skip locked
),
renewed as (
    update noetl.partition p
    set lease_until = now() + make_interval(secs => :lease_s),
        backend = coalesce(:backend, p.backend),
        behind = :behind
    from free
    where p.id = free.id
    returning p.id
)
select held.id, held.epoch, renewed.id is not null as is_renewed
from held
left join renewed on renewed.id = held.id
