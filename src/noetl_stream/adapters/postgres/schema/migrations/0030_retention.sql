-- What was trimmed on purpose, and dead letters that go with their execution. Source: PROTOCOL §5 "Retention".

alter table noetl.meta add column events_floor bigint not null default 0;
comment on column noetl.meta.events_floor is 'servers have trimmed EVENTS up to this sequence, or are about to';

create index dead_letter_execution on noetl.dead_letter (execution_id);

create function noetl.forget_letters() returns trigger
language plpgsql security definer set search_path = noetl, pg_temp as $$
begin
    delete from dead_letter where execution_id = old.execution_id;
    return null;
end $$;
create trigger forget_letters after delete on noetl.execution for each row execute function noetl.forget_letters();

revoke execute on function noetl.forget_letters() from public;
