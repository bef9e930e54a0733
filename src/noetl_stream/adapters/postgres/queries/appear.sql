-- Says that a server lives, and lists all. Of those long gone, none is forgotten that reads more than all later ones.
with said as (
    insert into noetl.server (name, version, reads, live_until)
    values (:name, :version, :reads, now() + make_interval(secs => :live_s))
    on conflict (name) do update set live_until = excluded.live_until
    returning name, version, reads, live_until
),
forgotten as (
    delete from noetl.server gone
    where live_until < now() - interval '1 day'
      and exists (select from noetl.server s where s.reads >= gone.reads and s.live_until > gone.live_until)
)
select name, version, reads, live_until > now() as live from noetl.server where name <> :name
union all
select name, version, reads, live_until > now() from said
