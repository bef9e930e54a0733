select
    s.partition,
    greatest(
        (select max(f.tick) from noetl.feed f where f.partition = s.partition and f.at_ms < :before_ms),
        (select floor.tick from noetl.feed_floor floor where floor.partition = s.partition),
        0
    )
from unnest(:partitions::int[]) as s (partition)
