-- Takes free partitions. A lease that ends later than any lease can was written by a broken clock, and counts as expired.
-- An owner that gave the partition back, or is alive without its lease, has not died: PROTOCOL §5 "Poison".
with free as materialized (
    select id as free_id, not given_back and (owner is null or owner <> all(:alive::text[])) as died
    from noetl.partition
    where (owner is null
       or given_back
       or lease_until < now()
       or lease_until > now() + 2 * make_interval(secs => :longest_s))
      and id <> all(:left::int[])
    order by id
    limit :limit
    for update skip locked
)
update noetl.partition p
set epoch = p.epoch + 1,
    owner = :owner,
    backend = :backend,
    lease_until = now() + make_interval(secs => :lease_s),
    crashes = p.crashes + free.died::integer,
    suspect = case when free.died and p.folding is not null then p.folding else p.suspect end,
    suspicions = case
        when not free.died or p.folding is null then p.suspicions
        when p.folding = p.suspect then p.suspicions + 1
        else 1
    end,
    folding = null,
    given_back = false
from free
where p.id = free_id
returning :lease.columns
