-- Business keys of executions, and who holds a unique one. Source: LANGUAGE §9 "Business key".

alter table noetl.execution add column key text not null default '';
comment on column noetl.execution.key is 'its business key; empty without one, and until it has started';

-- A server claims a unique key before it folds the start, so that of two starts on two servers one is told of the other.
create table noetl.execution_key (
    path          text collate "C" not null,
    key           text collate "C" not null,
    execution_id  text collate "C" not null,
    claimed_at    timestamptz not null default now(),
    primary key (path, key)
);
-- What is deleted leaves no claim behind, also one whose start was refused and which never had the key.
create index execution_key_by_execution on noetl.execution_key (execution_id);
comment on table noetl.execution_key is 'which execution of a playbook holds a unique key, until it is deleted';

create or replace function noetl.delete_execution(ended text, with_terms text[]) returns setof text
language plpgsql security definer set search_path = noetl, pg_temp as $$
declare
    given bigint[];
begin
    delete from execution where execution_id = ended and finished_ms is not null;
    if not found then
        return;
    end if;
    delete from execution_key where execution_id = ended;
    delete from request where execution_id = ended;
    delete from timer where execution_id = ended;
    delete from inbox where execution_id = ended;
    delete from object_use where execution_id = ended;
    delete from execution_term where term = any(with_terms) and execution_id = ended;
    with uses as (delete from credential_use where execution_id = ended returning number)
    select array_agg(number) into given from uses;
    if given is not null then
        -- Locked before looking: of two executions that are deleted at once, the second sees that the first is gone.
        perform from former_credential where number = any(given) order by number for update;
        delete from former_credential f
        where f.number = any(given) and not exists (select from credential_use u where u.number = f.number);
    end if;
    return next ended;
end $$;
