# What the public image of NATS offers, as far as deploy/compose.yaml uses it.
ARG BASE
FROM ${BASE}
COPY nats-server wget /usr/local/bin/
ENTRYPOINT ["nats-server"]
