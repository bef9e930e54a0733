-- A letter from the inbox is put back there in the same transaction.
with settled as (
    update noetl.dead_letter
    set state = 'requeued', settled_by = :by, settled_ms = :at_ms
    where id = :id and state = 'waiting'
    returning id, source, partition, execution_id, body
),
put_back as (
    insert into noetl.inbox (id, partition, execution_id, body)
    select 'requeue-' || id, partition, execution_id, convert_from(body, 'UTF8')::json
    from settled
    where source = 'inbox'
)
select id from settled
