-- Partitions that have folded EVENTS up to :last_seq, in ticks that none of the former ones had, and published nothing
-- of it: their first owner publishes the records of all executions that have not ended. The feed begins anew.
with meta as (
    update noetl.meta set partitions = :count, events_floor = :last_seq
),
floors as (
    insert into noetl.feed_floor (partition, tick)
    select id, :tick::bigint from generate_series(0, :count - 1) as id where :tick::bigint > 0
)
insert into noetl.partition (id, epoch, tick, published_tick, last_seq, generation)
select id, :epoch, :tick, 0, :last_seq, :generation + 1 from generate_series(0, :count - 1) as id
