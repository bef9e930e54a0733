# The base with what builds in it, and with the package index of this machine.
ARG BASE
FROM ${BASE}
RUN apt-get -q update && apt-get -qq install --yes --no-install-recommends binutils python3-pip
COPY certificates /etc/ssl/certs/ca-certificates.crt
COPY pip.conf /etc/pip.conf
