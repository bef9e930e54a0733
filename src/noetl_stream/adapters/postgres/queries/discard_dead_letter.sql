update noetl.dead_letter
set state = 'discarded', settled_by = :by, settled_ms = :at_ms, body = ''
where id = :id and state = 'waiting'
returning id
