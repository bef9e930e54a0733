select id, epoch, owner, last_seq, tick, published_tick, owner is not null and lease_until > now(), behind
from noetl.partition
where :ids::int[] is null or id = any(:ids)
order by id
