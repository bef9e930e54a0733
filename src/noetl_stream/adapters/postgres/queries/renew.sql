with mine as materialized (
    select p.id
    from noetl.partition p
    join unnest($2::int[], $3::bigint[]) as v (id, epoch) on p.id = v.id and p.epoch = v.epoch and p.owner = $1
    order by p.id
    for update of p
)
update noetl.partition p
set lease_until = now() + make_interval(secs => $4)
from mine
where p.id = mine.id
returning p.id
