-- A chain of the audit after a position, with where it begins and ends; all of one moment. The hashes are computed here,
-- not by the function of the schema.
with links as (
    (select number, position, previous,
            sha256(convert_to(jsonb_build_array(
                encode(previous, 'hex'), lane, position, number, :attempt.columns
            )::text, 'UTF8')) as hash
     from noetl.audit
     where :entries = 'call' and (at_ms / 2592000000) % 16 = :slot and lane = :lane and position > :after
     order by position limit :limit)
    union all
    (select number, position, previous,
            sha256(convert_to(jsonb_build_array(
                encode(previous, 'hex'), lane, position, number, at_ms, :answer.columns
            )::text, 'UTF8'))
     from noetl.audit_answer
     where :entries = 'answer' and (at_ms / 2592000000) % 16 = :slot and lane = :lane and position > :after
     order by position limit :limit)
)
select chain.anchor_position, chain.anchor_hash, chain.position, chain.hash,
       links.number, links.position, links.previous, links.hash
from noetl.audit_chain as chain left join links on true
where chain.entries = :entries and chain.slot = :slot and chain.lane = :lane
order by links.position, links.number
