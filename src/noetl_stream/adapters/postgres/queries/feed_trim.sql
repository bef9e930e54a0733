-- Skips what other servers are trimming at the same time.
with old as materialized (
    select partition, tick
    from noetl.feed
    where at_ms < (extract(epoch from clock_timestamp()) * 1000)::bigint - :keep_ms
    limit :limit
    for update skip locked
),
gone as (
    delete from noetl.feed f using old
    where f.partition = old.partition and f.tick = old.tick
    returning f.partition, f.tick
),
moved as (
    insert into noetl.feed_floor (partition, tick)
    select partition, max(tick) from gone group by partition order by partition
    on conflict (partition) do update set tick = greatest(noetl.feed_floor.tick, excluded.tick)
)
select count(*) from gone
