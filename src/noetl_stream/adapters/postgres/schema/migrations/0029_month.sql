-- The journal in partitions by the month in which an execution started, which its id (UUIDv7) carries: months that
-- nobody needs go by dropping a table. Source: PROTOCOL §5 "Retention".
--
-- The journal there is becomes the first partition as it stands, up to the end of the next month. Servers go on beside
-- the new tables, which have the names and columns of the old.

alter table noetl.event rename to event_before;
alter index noetl.event_pkey rename to event_before_pkey;
create table noetl.event (
    like noetl.event_before including defaults including comments,
    primary key (execution_id, position)
) partition by range (execution_id);
comment on table noetl.event is 'the journal: facts and decisions in fold order, only ever added to';

-- In this transaction: servers and gateways go on beside it, and the roles get their grants only after all migrations.
do $$
declare
    given record;
begin
    for given in
        select privilege_type as may, grantee::regrole as role
        from pg_class cross join aclexplode(relacl)
        where oid = 'noetl.event_before'::regclass and grantee not in (0, relowner)
    loop
        execute format('grant %s on noetl.event to %s', given.may, given.role);
    end loop;
end $$;

create table noetl.event_other partition of noetl.event default;
comment on table noetl.event_other is 'journals that no other partition takes: ids without a time, clocks that are wrong';

create or replace view noetl.history as
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

create view noetl.event_month as
select relname::text as name,
       substring(bound from $$FROM \('([^']*)'\)$$) as from_id,
       substring(bound from $$TO \('([^']*)'\)$$) as to_id
from pg_inherits
join pg_class on oid = inhrelid
cross join lateral pg_get_expr(relpartbound, oid) as bound
where inhparent = 'noetl.event'::regclass and bound <> 'DEFAULT';
comment on view noetl.event_month is 'the partitions of the journal: ids from from_id on (null: from the first) and below to_id';

do $$
declare
    bound text := noetl.first_id((date_trunc('month', now() at time zone 'UTC') + interval '2 months') at time zone 'UTC');
begin
    if not exists (select from noetl.event_before) then
        drop table noetl.event_before;
        return;
    end if;
    if (select max(execution_id) from noetl.event_before) >= bound then
        with beyond as (delete from noetl.event_before where execution_id >= bound returning *)
        insert into noetl.event select * from beyond;
    end if;
    execute format('alter table noetl.event attach partition noetl.event_before for values from (minvalue) to (%L)', bound);
    alter table noetl.event_before drop constraint if exists before_month;
end $$;

create function noetl.make_months(ahead integer) returns setof text
language plpgsql security definer set search_path = noetl, pg_temp set lock_timeout = '2s' as $$
declare
    month timestamp;
    lowest text;
    following text;
    made text;
begin
    perform pg_advisory_xact_lock(hashtextextended('noetl months', 0));
    for month in select date_trunc('month', now() at time zone 'UTC') + n * interval '1 month' from generate_series(0, ahead) n
    loop
        lowest := first_id(month at time zone 'UTC');
        following := first_id((month + interval '1 month') at time zone 'UTC');
        made := 'event_' || to_char(month, 'YYYY_MM');
        continue when exists (select from event_month where to_id > lowest and coalesce(from_id, '') < following);
        execute format('create table %I (like event including all)', made);
        -- Journals that came before it was made.
        execute format(
            'with early as (delete from event_other where execution_id >= %L and execution_id < %L returning *)
             insert into %I select * from early', lowest, following, made);
        execute format('alter table event attach partition %I for values from (%L) to (%L)', made, lowest, following);
        return next made;
    end loop;
end $$;
comment on function noetl.make_months is 'makes the partitions of this month and of so many ahead; returns those it made';

create function noetl.drop_empty_months() returns setof text
language plpgsql security definer set search_path = noetl, pg_temp set lock_timeout = '2s' as $$
declare
    month record;
begin
    for month in select * from event_month where to_id <= first_id(now() - interval '2 days')
    loop
        continue when exists (
            select from execution where execution_id >= coalesce(month.from_id, '') and execution_id < month.to_id
        );
        begin
            execute format('drop table %I', month.name);
            return next month.name;
        exception when lock_not_available then
            null; -- somebody reads it for long: next time
        end;
    end loop;
end $$;
comment on function noetl.drop_empty_months is 'drops the partitions of past months that no execution is left of; returns their names';

revoke execute on all functions in schema noetl from public;
select noetl.make_months(2);

-- The journal is a new table: the roles that exist get their grants again.
update noetl.meta set grants = '';
