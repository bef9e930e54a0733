update noetl.dead_letter
set state = 'discarded', settled_by = $2, settled_ms = $3, body = ''
where id = $1 and state = 'waiting'
returning id
