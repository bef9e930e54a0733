with moved as materialized (
    select p.id, v.last_seq, v.last_ms
    from noetl.partition p
    join unnest(:partition_ids::int[], :folded::bigint[], :last_seqs::bigint[], :last_times::bigint[])
        as v (id, folded, last_seq, last_ms)
        on p.id = v.id and p.last_seq = v.folded
    where p.owner is null or p.lease_until <= now()
    order by p.id
    for update of p
)
update noetl.partition p
set epoch = p.epoch + 1,
    owner = null,
    backend = null,
    given_back = true,
    last_seq = moved.last_seq,
    last_ms = moved.last_ms,
    generation = p.generation + 1
from moved
where p.id = moved.id
returning p.id
