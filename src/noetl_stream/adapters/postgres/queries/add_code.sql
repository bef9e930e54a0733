-- Of the token's codes, the newest :most stay; expired ones go.
with gone as (
    delete from noetl.sign_in_code
    where expires_ms <= :code.created_ms
        or code_hash in (
            select code_hash from noetl.sign_in_code
            where token_id = :code.token_id
            order by created_ms desc, code_hash
            offset :most::bigint - 1
        )
)
insert into noetl.sign_in_code (:code.columns)
values (:code.values)
