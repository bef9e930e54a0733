with mine as materialized (
    select p.id, v.published_tick
    from noetl.partition p
    join unnest(:partition_ids::int[], :epochs::bigint[], :published_ticks::bigint[]) as v (id, epoch, published_tick)
        on p.id = v.id and p.epoch = v.epoch and p.owner = :owner
    order by p.id
    for update of p
)
update noetl.partition p
set owner = null,
    backend = null,
    lease_until = now(),
    given_back = true,
    folding = null,
    published_tick = greatest(p.published_tick, mine.published_tick)
from mine
where p.id = mine.id
