-- Values of credentials that were handed out for an execution and have changed since: what is shown of the execution
-- hides them too. Source: docs/reference/credentials.md.

alter table noetl.credential add column number bigint generated always as identity;
comment on column noetl.credential.number is 'the value''s own; a key rotation leaves it';

create table noetl.former_credential (
    number       bigint primary key,
    name         text collate "C" not null,
    version      integer not null,
    key_id       text not null,
    sealed       bytea not null,
    replaced_at  timestamptz not null default now()
);
comment on table noetl.former_credential is
    'values of credentials that were replaced or deleted, as long as an execution that was given them is kept';

-- 0: which value an earlier version handed out is unknown, and no longer stored.
alter table noetl.credential_use add column number bigint not null default 0;
update noetl.credential_use u set number = c.number from noetl.credential c where c.name = u.name;
alter table noetl.credential_use drop constraint credential_use_pkey;
alter table noetl.credential_use add primary key (execution_id, name, number);
create index credential_use_number on noetl.credential_use (number);
comment on column noetl.credential_use.number is 'which value of the credential';

-- A use is recorded under a lock of the value that was read. Whoever replaces that value waits for it and then finds the
-- use, or comes first, and the value must be read again.
create function noetl.record_credential_use(given_to text, used text, read bytea) returns boolean
language sql security definer set search_path = noetl, pg_temp as $$
    with given as (select name, number from credential where name = used and sealed = read for share),
    recorded as (
        insert into credential_use (execution_id, name, number) select given_to, name, number from given
        on conflict do nothing
    )
    select exists (select from given)
$$;
comment on function noetl.record_credential_use is 'whether the value that was read is still the stored one';

create function noetl.keep_former_credential() returns trigger
language plpgsql security definer set search_path = noetl, pg_temp as $$
begin
    -- A use that is being deleted is waited for; one that is found stays until this is committed.
    perform from credential_use where number = old.number limit 1 for key share;
    if found then
        insert into former_credential (number, name, version, key_id, sealed)
        values (old.number, old.name, old.version, old.key_id, old.sealed);
    end if;
    return null;
end $$;
create trigger keep_former after update of number or delete on noetl.credential
    for each row execute function noetl.keep_former_credential();

create or replace function noetl.delete_execution(ended text, with_terms text[]) returns setof text
language plpgsql security definer set search_path = noetl, pg_temp as $$
declare
    given bigint[];
begin
    delete from execution where execution_id = ended and finished_ms is not null;
    if not found then
        return;
    end if;
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
