-- Partitions of a database that was restored: nothing of the streams, which are empty, is folded, and nothing of the
-- database is published in them.
with meta as (
    update noetl.meta set events_floor = 0, grants = ''
),
begun as (
    update noetl.partition
    set epoch = epoch + 1,
        owner = null,
        backend = null,
        lease_until = '-infinity',
        given_back = true,
        crashes = 0,
        published_tick = 0,
        last_seq = 0,
        last_ms = 0,
        generation = generation + 1
    returning generation
)
select max(generation) from begun
