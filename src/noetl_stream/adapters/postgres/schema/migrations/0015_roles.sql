-- What gateways change in tables that only servers write: as functions of the owner, which do nothing else.
-- Source: docs/reference/tables.md "Roles".

alter table noetl.meta add column grants text not null default '';
comment on column noetl.meta.grants is 'checksum of the grants that were last given to the roles of this database';

create function noetl.begin_deleting(ended text) returns void
language sql security definer set search_path = noetl, pg_temp as $$
    delete from event
    where execution_id = ended
      and position = 1
      and exists (select from execution where execution_id = ended and finished_ms is not null)
$$;
comment on function noetl.begin_deleting is 'deletes the first journal entry of an ended execution';

create function noetl.delete_events(ended text, most integer) returns setof integer
language sql security definer set search_path = noetl, pg_temp as $$
    delete from event
    where execution_id = ended
      and position <= (select min(position) + most - 1 from event where execution_id = ended)
      and exists (select from execution where execution_id = ended and finished_ms is not null)
    returning position
$$;
comment on function noetl.delete_events is 'deletes the first entries of an ended execution''s journal; returns their positions';

create function noetl.delete_execution(ended text, with_terms text[]) returns setof text
language sql security definer set search_path = noetl, pg_temp as $$
    with gone as (
        delete from execution where execution_id = ended and finished_ms is not null returning execution_id
    ),
    requests as (delete from request r using gone where r.execution_id = gone.execution_id),
    timers as (delete from timer t using gone where t.execution_id = gone.execution_id),
    messages as (delete from inbox i using gone where i.execution_id = gone.execution_id),
    uses as (delete from object_use u using gone where u.execution_id = gone.execution_id),
    terms as (
        delete from execution_term t using gone
        where t.term = any(with_terms) and t.execution_id = gone.execution_id
    )
    select execution_id from gone
$$;
comment on function noetl.delete_execution is 'deletes what is left of an ended execution after its journal; no row: it does not exist or has not ended';

create function noetl.requeue_dead_letter(letter text, by_whom text, now_ms bigint) returns setof text
language sql security definer set search_path = noetl, pg_temp as $$
    with settled as (
        update dead_letter
        set state = 'requeued', settled_by = by_whom, settled_ms = now_ms
        where id = letter and state = 'waiting'
        returning id, source, partition, execution_id, body
    ),
    put_back as (
        insert into inbox (id, partition, execution_id, body)
        select 'requeue-' || id, partition, execution_id, convert_from(body, 'UTF8')::json
        from settled
        where source = 'inbox'
    )
    select id from settled
$$;
comment on function noetl.requeue_dead_letter is 'settles a letter; one from the inbox is put back there';

create function noetl.discard_dead_letter(letter text, by_whom text, now_ms bigint) returns setof text
language sql security definer set search_path = noetl, pg_temp as $$
    update dead_letter
    set state = 'discarded', settled_by = by_whom, settled_ms = now_ms, body = ''
    where id = letter and state = 'waiting'
    returning id
$$;
comment on function noetl.discard_dead_letter is 'settles a letter and drops its body';

revoke execute on all functions in schema noetl from public;
