select id, epoch, owner, last_seq, tick, published_tick, owner is not null and lease_until > now()
from noetl.partition
where $1::int[] is null or id = any($1)
order by id
