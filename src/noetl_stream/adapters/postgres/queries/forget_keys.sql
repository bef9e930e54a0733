with forgotten as (
    delete from noetl.idempotency where claimed_at < now() - make_interval(secs => :older_than_s) returning 1
)
select count(*) from forgotten
