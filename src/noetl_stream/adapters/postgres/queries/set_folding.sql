-- Committed before an input of this execution is folded alone. PROTOCOL §5 "Poison".
update noetl.partition
set folding = :execution_id
where id = :partition and epoch = :epoch and owner = :owner
returning id
