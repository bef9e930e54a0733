with repaired as materialized (
    select p.id, v.last_seq, v.last_ms, v.tick, v.published_tick, v.epoch
    from noetl.partition p
    join unnest(
        :partition_ids::int[], :folded::bigint[], :last_seqs::bigint[], :last_times::bigint[],
        :ticks::bigint[], :published_ticks::bigint[], :epochs::bigint[]
    ) as v (id, folded, last_seq, last_ms, tick, published_tick, epoch)
        on p.id = v.id and p.last_seq = v.folded
    where p.owner is null or p.lease_until <= now() or p.owner = :owner
    order by p.id
    for update of p
)
update noetl.partition p
set epoch = greatest(p.epoch, repaired.epoch) + 1,
    owner = null,
    backend = null,
    given_back = true,
    last_seq = repaired.last_seq,
    last_ms = repaired.last_ms,
    tick = greatest(p.tick, repaired.tick),
    published_tick = repaired.published_tick,
    generation = p.generation + 1
from repaired
where p.id = repaired.id
returning p.id
