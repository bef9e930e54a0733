with mine as materialized (
    select p.id, v.published_tick
    from noetl.partition p
    join unnest($2::int[], $3::bigint[], $4::bigint[]) as v (id, epoch, published_tick)
        on p.id = v.id and p.epoch = v.epoch and p.owner = $1
    order by p.id
    for update of p
)
update noetl.partition p
set owner = null,
    backend = null,
    lease_until = now(),
    given_back = true,
    published_tick = mine.published_tick
from mine
where p.id = mine.id
