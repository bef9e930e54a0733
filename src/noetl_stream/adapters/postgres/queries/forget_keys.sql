with forgotten as (
    delete from noetl.idempotency where claimed_at < now() - make_interval(secs => $1) returning 1
)
select count(*) from forgotten
