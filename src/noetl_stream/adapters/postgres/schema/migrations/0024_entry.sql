-- An entry of the journal: the facts of one input and the decisions that follow. Source: PROTOCOL §1 "Journal".
-- Entries written before have one fact each, an object, with its name and cause.

alter table noetl.event add column decisions json, alter column name drop not null;
comment on column noetl.event.position is 'of the first fact; the others follow, the decisions last';
comment on column noetl.event.data is 'the facts of one input, an array; an object: the one fact of an entry of format 1';
comment on column noetl.event.decisions is 'the facts that follow from the last of them, an array';
comment on column noetl.event.number is 'the number of the first fact in its run of the command';

drop view noetl.history;
create view noetl.history as
select e.execution_id, e.position, f.place, to_timestamp(e.at_ms / 1000.0) as at,
       f.fact ->> 'name' as name, f.source, f.fact ->> 'step_run_id' as step_run_id, f.fact as data
from noetl.event e
cross join lateral (
    select place, e.source, fact
    from json_array_elements(case json_typeof(e.data) when 'array' then e.data else json_build_array(e.data) end)
        with ordinality as given (fact, place)
    union all
    select 1000000 + place, 'server', fact from json_array_elements(e.decisions) with ordinality as decided (fact, place)
) f;
comment on view noetl.history is 'the journal for people: times as times; the facts of an entry in order of place';
