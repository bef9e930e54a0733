insert into noetl.audit_answer (number, status, reason, made) values ($1, $2, $3, $4) on conflict (number) do nothing
