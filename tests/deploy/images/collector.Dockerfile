# What the public image of a collector offers, as far as docs/how-to/run-in-containers.md uses it: it logs spans.
ARG BASE
FROM ${BASE}
COPY rotel-agent /usr/local/bin/
COPY libpython* /usr/lib/
ENV ROTEL_OTLP_HTTP_ENDPOINT=0.0.0.0:4318 ROTEL_EXPORTER=blackhole \
    ROTEL_DEBUG_LOG=traces ROTEL_DEBUG_LOG_VERBOSITY=detailed
ENTRYPOINT ["rotel-agent", "start"]
