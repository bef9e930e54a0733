# The base, with the package index of this machine.
ARG BASE
FROM ${BASE}
COPY certificates /etc/ssl/certs/ca-certificates.crt
COPY pip.conf /etc/pip.conf
