-- The journal there is becomes a partition as it stands (`month`). Postgres must know that it fits: a check that is added
-- here for new rows, and validated by the next migration in a transaction of its own, while servers go on writing.
-- Ids beyond the bound have no time, or clocks were wrong. With any, the journal is read once under a lock.

create function noetl.first_id(at timestamptz) returns text language sql immutable strict as $$
    select left(ms, 8) || '-' || right(ms, 4)
    from lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') as ms
$$;
comment on function noetl.first_id is 'sorts before the ids of executions that started at this time or later, and after all others';

do $$
declare
    bound text := noetl.first_id((date_trunc('month', now() at time zone 'UTC') + interval '2 months') at time zone 'UTC');
begin
    if coalesce((select max(execution_id) from noetl.event), '') < bound then
        execute format('alter table noetl.event add constraint before_month check (execution_id < %L) not valid', bound);
    end if;
end $$;
