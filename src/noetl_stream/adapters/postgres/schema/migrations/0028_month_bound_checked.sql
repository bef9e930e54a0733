-- Reads the whole journal: 2 million entries, a GB, in 4 s on two slow cores. Nobody waits for it.

do $$
begin
    if exists (select from pg_constraint where conrelid = 'noetl.event'::regclass and conname = 'before_month') then
        alter table noetl.event validate constraint before_month;
    end if;
end $$;
