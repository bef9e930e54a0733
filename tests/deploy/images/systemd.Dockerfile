# A machine with systemd, on which docs/how-to/run-with-systemd.md was followed: install is its first block.
ARG BASE
FROM ${BASE}
RUN apt-get -q update && apt-get -qq install --yes --no-install-recommends systemd
WORKDIR /root/noetl-stream
COPY . .
RUN sh -eux install
COPY boot /usr/local/sbin/
ENV container=docker
ENTRYPOINT ["boot"]
