-- Takes free partitions. A lease that ends later than any lease can was written by a broken clock, and counts as expired.
with free as materialized (
    select id as free_id
    from noetl.partition
    where owner is null
       or given_back
       or lease_until < now()
       or lease_until > now() + 2 * make_interval(secs => :lease_s)
    order by id
    limit :limit
    for update skip locked
)
update noetl.partition p
set epoch = p.epoch + 1,
    owner = :owner,
    backend = pg_backend_pid(),
    lease_until = now() + make_interval(secs => :lease_s),
    crashes = p.crashes + case when p.given_back then 0 else 1 end,
    given_back = false
from free
where p.id = free_id
returning :lease.columns
