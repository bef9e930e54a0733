-- Dead letters have bounds: the oldest go first. Source: PROTOCOL §5 "Poison".

create function noetl.trim_dead_letters(most bigint, most_bytes bigint, before_ms bigint, at_once integer)
returns bigint language sql security definer set search_path = noetl, pg_temp as $$
    with held as (
        select number, at_ms,
               row_number() over newest as place,
               sum(octet_length(body)) over newest as bytes
        from dead_letter
        window newest as (order by number desc rows unbounded preceding)
    ),
    gone as (
        delete from dead_letter
        where number in (
            select number from held where place > most or bytes > most_bytes or at_ms < before_ms
            order by number limit at_once
        )
        returning 1
    )
    select count(*) from gone
$$;
comment on function noetl.trim_dead_letters is 'deletes the oldest letters above a bound, so many at once; gives how many';
revoke execute on function noetl.trim_dead_letters from public;
