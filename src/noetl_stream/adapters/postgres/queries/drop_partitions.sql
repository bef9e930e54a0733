with gone as (
    delete from noetl.partition returning epoch, tick, generation
),
feed as (
    delete from noetl.feed
),
floors as (
    delete from noetl.feed_floor
)
select max(epoch) as epoch, max(tick) as tick, max(generation) as generation from gone
