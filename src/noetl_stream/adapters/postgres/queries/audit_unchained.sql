-- Rows of the audit that are in no chain: how many from before there were chains, and the others by table.
with outside as (
    select 'call' as entries, number, coalesce(lane = 0 and position = 0, false) as has_no_place
    from noetl.audit
    where lane is null or lane < 0 or lane > 7 or position is null or position < 1
    union all
    select 'answer', number, coalesce(lane = 0 and position = 0, false)
    from noetl.audit_answer
    where lane is null or lane < 0 or lane > 7 or position is null or position < 1
),
judged as (
    select entries, number, has_no_place and number <= (select max(unchained) from noetl.audit_chain) as is_older
    from outside
)
select count(*) filter (where is_older),
       array(select number from judged where not is_older and entries = 'call' order by number limit 100),
       array(select number from judged where not is_older and entries = 'answer' order by number limit 100)
from judged
