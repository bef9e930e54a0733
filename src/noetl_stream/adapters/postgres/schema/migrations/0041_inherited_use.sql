-- Executions that get values of another one, as a called one gets its caller's, hide what was hidden there.
-- Source: docs/reference/credentials.md "What is hidden".

create function noetl.inherit_credential_uses(givers text[], heirs text[], most integer) returns void
language plpgsql security definer set search_path = noetl, pg_temp as $$
begin
    -- Locked before they are copied: with a giver that is deleted meanwhile go the values that nobody else was given.
    perform from former_credential
    where number in (select number from credential_use where execution_id = any(givers))
    order by number for key share;
    insert into credential_use (execution_id, name, number)
    select distinct pair.heir, used.name, used.number
    from unnest(givers, heirs) as pair (giver, heir)
    cross join lateral (
        select u.name, u.number from credential_use u where u.execution_id = pair.giver order by u.number desc limit most
    ) as used
    order by used.number
    on conflict do nothing;
end $$;
comment on function noetl.inherit_credential_uses is 'hides in each heir the newest values that its giver was given';

-- A value that is dropped for one execution stays while another was given it.
create or replace function noetl.record_given_value(
    given_to text, named text, as_version integer, with_key text, value bytea, most integer, most_bytes bigint
) returns void
language plpgsql security definer set search_path = noetl, pg_temp as $$
declare
    giver text := substring(named from '^[^/]+/');
    own bigint;
    dropped bigint[];
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
    ), gone as (
        delete from credential_use u using counted c
        where u.execution_id = given_to and u.number = c.number and (c.place > most or c.bytes > most_bytes)
        returning u.number
    )
    select array_agg(number) into dropped from gone;
    if dropped is not null then
        perform from former_credential where number = any(dropped) order by number for update;
        delete from former_credential f
        where f.number = any(dropped) and not exists (select from credential_use u where u.number = f.number);
    end if;
end $$;
