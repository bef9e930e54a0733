# A machine with systemd and noetl-stream.
ARG STREAM
ARG BASE
FROM ${STREAM} AS stream
FROM ${BASE}
RUN apt-get -q update && apt-get -qq install --yes --no-install-recommends systemd
COPY --from=stream /opt/noetl-stream /opt/noetl-stream
COPY boot /usr/local/sbin/
ENV container=docker
ENTRYPOINT ["boot"]
