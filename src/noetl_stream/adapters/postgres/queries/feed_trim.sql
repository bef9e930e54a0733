with gone as (
    delete from noetl.feed
    where at_ms < (extract(epoch from clock_timestamp()) * 1000)::bigint - $1
    returning partition, tick
)
insert into noetl.feed_floor (partition, tick)
select partition, max(tick) from gone group by partition
on conflict (partition) do update set tick = greatest(noetl.feed_floor.tick, excluded.tick)
