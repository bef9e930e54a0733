{{/* The environment of every process. Takes (root identity). */}}
{{- define "noetl.environment" -}}
{{- $values := (first .).Values -}}
- {name: NOETL_NATS_URL, value: {{ $values.nats.url | quote }}}
- name: NOETL_NATS_NKEY
  valueFrom: {secretKeyRef: {name: {{ $values.nats.seedsSecret }}, key: {{ last . }}.nk}}
{{- if $values.nats.tlsSecret }}
- {name: NOETL_NATS_CERTIFICATE, value: /etc/noetl/nats-tls}
{{- end }}
- {name: NOETL_LOG_LEVEL, value: {{ $values.log.level }}}
- {name: NOETL_LOG_FORMAT, value: {{ $values.log.format }}}
{{- if $values.trust.configMap }}
- {name: SSL_CERT_FILE, value: /etc/noetl/trust/{{ $values.trust.key }}}
{{- end }}
{{- end }}

{{/* Takes (root user). */}}
{{- define "noetl.postgres" -}}
- name: NOETL_POSTGRES_DSN
  valueFrom: {secretKeyRef: {name: {{ (first .).Values.postgres.dsnSecret }}, key: {{ last . }}}}
{{- end }}

{{/* Where a process that makes spans sends them. */}}
{{- define "noetl.traces" -}}
{{- with .Values.traces }}
{{- if .endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .ratio | quote }}}
{{- if .headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ .headersSecret }}, key: headers}}
{{- end }}
{{- if $.Values.trust.configMap }}
- {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: /etc/noetl/trust/{{ $.Values.trust.key }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What servers and gateways share: keys, and what playbooks may use. */}}
{{- define "noetl.shared" -}}
- name: NOETL_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.keys.secret }}, key: access}}
- name: NOETL_CREDENTIAL_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.keys.secret }}, key: credential}}
- name: NOETL_CREDENTIAL_OLD_KEYS
  valueFrom: {secretKeyRef: {name: {{ .Values.keys.secret }}, key: credential-old, optional: true}}
- {name: NOETL_GRANTS_DEFAULT, value: {{ .Values.grantsDefault }}}
{{- if and .Values.grants .Values.server.enabled }}
- {name: NOETL_GRANTS, value: /etc/noetl/grants/grants.yaml}
{{- end }}
{{- end }}

{{/* Where the grants are mounted in a container. Takes the root. */}}
{{- define "noetl.grantsMount" -}}
{{- if and .Values.grants .Values.server.enabled }}
- {name: grants, mountPath: /etc/noetl/grants, readOnly: true}
{{- end }}
{{- end }}

{{- define "noetl.grantsVolume" -}}
{{- if and .Values.grants .Values.server.enabled }}
- name: grants
  configMap: {name: {{ include "noetl.name" . }}-server-grants}
{{- end }}
{{- end }}

{{/* The settings of a role. Takes its values. */}}
{{- define "noetl.settings" -}}
{{- range $name, $value := .settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- range $name, $from := .secretSettings }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key }}}}
{{- end }}
{{- end }}

{{/* Volumes of every pod, and where they are mounted. */}}
{{- define "noetl.volumes" -}}
{{- if .Values.trust.configMap }}
- name: trust
  configMap: {name: {{ .Values.trust.configMap }}}
{{- end }}
{{- if .Values.nats.tlsSecret }}
- name: nats-tls
  secret: {secretName: {{ .Values.nats.tlsSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "noetl.mounts" -}}
- {name: temporary, mountPath: /tmp}
{{- if .Values.trust.configMap }}
- {name: trust, mountPath: /etc/noetl/trust, readOnly: true}
{{- end }}
{{- if .Values.nats.tlsSecret }}
- {name: nats-tls, mountPath: /etc/noetl/nats-tls, readOnly: true}
{{- end }}
{{- end }}
