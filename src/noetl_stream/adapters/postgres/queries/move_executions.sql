-- Gives executions and aggregates, and what waits for them, other partitions.
with moved as materialized (
    select execution_id, partition from unnest(:execution_ids::text[], :partitions::int[]) as m (execution_id, partition)
),
timers as (
    update noetl.timer t set partition = m.partition from moved m where t.execution_id = m.execution_id
),
messages as (
    update noetl.inbox i set partition = m.partition from moved m where i.execution_id = m.execution_id
),
aggregates as (
    update noetl.aggregate a set partition = m.partition from moved m where a.id = m.execution_id
),
letters as (
    update noetl.dead_letter d set partition = m.partition from moved m where d.execution_id = m.execution_id
)
update noetl.execution e set partition = m.partition from moved m where e.execution_id = m.execution_id
