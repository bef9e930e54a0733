-- The generation, in a row without a partition, and the last trimmed tick of each partition that has one.
select null::int as partition, max(generation)::bigint as tick from noetl.partition
union all
select partition, tick from noetl.feed_floor
