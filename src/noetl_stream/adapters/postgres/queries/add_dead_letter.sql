insert into noetl.dead_letter
    (id, at_ms, source, partition, execution_id, subject, reason, body, size, source_seq)
values
    (:id, :at_ms, :source, :partition, :execution_id, :subject, :reason, :body, :size, :source_seq)
on conflict do nothing
