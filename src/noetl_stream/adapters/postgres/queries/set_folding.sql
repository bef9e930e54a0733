-- Committed before an input of this execution is folded alone, or before it is loaded alone. PROTOCOL §5 "Poison".
-- `cleared`: what was noted before has come to a good end.
update noetl.partition
set suspicions = case when :cleared and folding = suspect then 0 else suspicions end,
    folding = :execution_id
where id = :partition and epoch = :epoch and owner = :owner
returning id
