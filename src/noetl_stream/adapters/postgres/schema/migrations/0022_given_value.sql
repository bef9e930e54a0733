-- Values that executions were given and no credential has had: what workers read themselves. What is shown of the
-- execution hides them too. Source: docs/reference/credentials.md.

comment on table noetl.credential_use is 'values that an execution was given: they are hidden in all that is shown of it';
comment on column noetl.credential_use.name is 'the credential; else the giver, a mark and what was read, with slashes';
comment on table noetl.former_credential is
    'values that no credential has, as long as an execution that was given them is kept: replaced, deleted, or read by a worker';

create function noetl.record_given_value(
    given_to text, named text, as_version integer, with_key text, value bytea, most integer, most_bytes bigint
) returns void
language plpgsql security definer set search_path = noetl, pg_temp as $$
declare
    giver text := substring(named from '^[^/]+/');
    own bigint;
begin
    if giver is null then
        raise exception 'a given value has the name of a credential: %', named;
    end if;
    -- Workers of a pool read the same value at once: the second finds that of the first, and both count.
    perform pg_advisory_xact_lock(hashtextextended('noetl given value ' || given_to, 0));
    perform from credential_use where execution_id = given_to and name = named;
    if found then
        return;
    end if;
    own := nextval(pg_get_serial_sequence('noetl.credential', 'number'));
    insert into former_credential (number, name, version, key_id, sealed)
    values (own, named, as_version, with_key, value);
    insert into credential_use (execution_id, name, number) values (given_to, named, own);
    with counted as (
        select f.number, row_number() over newest as place, sum(octet_length(f.sealed)) over newest as bytes
        from credential_use u join former_credential f on f.number = u.number
        where u.execution_id = given_to and starts_with(u.name, giver)
        window newest as (order by f.number desc)
    ), dropped as (
        delete from credential_use u using counted c
        where u.execution_id = given_to and u.number = c.number and (c.place > most or c.bytes > most_bytes)
        returning u.number
    )
    delete from former_credential f using dropped d where f.number = d.number;
end $$;
comment on function noetl.record_given_value is 'keeps the newest values from each giver, up to the bounds';
