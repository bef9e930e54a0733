-- Keeps a bundle for a while. Returns no row if it is being deleted.
insert into noetl.bundle as b (name, wanted_ms)
values (:name, :now_ms)
on conflict (name) do update set wanted_ms = greatest(b.wanted_ms, excluded.wanted_ms) where b.wanted_ms > 0
returning true
