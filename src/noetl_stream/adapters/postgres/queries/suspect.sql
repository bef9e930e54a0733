-- Committed before an input of this execution is folded. PROTOCOL §5 "Poison".
update noetl.partition
set suspect = :execution_id
where id = :partition and epoch = :epoch and owner = :owner
returning id
