insert into noetl.feed_reader (reader, partition, tick)
select :reader, seen.partition, seen.tick
from unnest(:partition_ids::int[], :ticks::bigint[]) as seen (partition, tick)
order by 2
on conflict (reader, partition) do update set tick = excluded.tick where feed_reader.tick < excluded.tick
