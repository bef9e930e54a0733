-- Those that are named, the first that wait, and the first that may have to yield. A row may be among several.
select :limit_slots.columns
from noetl.limit_slot s
where (s.limit_id, s.holder) in (select * from unnest(:limit_ids::text[], :holders::text[]))
union all
select w.*
from unnest(:waiting_ids::text[], :waiting::bigint[]) as l (id, most)
cross join lateral (
    select :limit_slots.columns
    from noetl.limit_slot s
    where s.limit_id = l.id and s.granted_ms is null
    order by s.number
    limit l.most
) as w
union all
select y.*
from unnest(:yielding_ids::text[], :yielding::bigint[]) as l (id, most)
cross join lateral (
    select :limit_slots.columns
    from noetl.limit_slot s
    where s.limit_id = l.id and s.yields = 1
    order by s.number
    limit l.most
) as y
