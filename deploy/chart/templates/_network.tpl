{{/* The edges of the code; what these do not allow is denied. */}}
{{- define "noetl.toDns" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{- define "noetl.toNats" -}}
- to:
    {{- toYaml .Values.networkPolicy.nats | nindent 4 }}
  ports:
    - {port: {{ .Values.networkPolicy.natsPort }}, protocol: TCP}
{{- end }}

{{- define "noetl.toPostgres" -}}
- to:
    {{- toYaml .Values.networkPolicy.postgres | nindent 4 }}
  ports:
    - {port: {{ .Values.networkPolicy.postgresPort }}, protocol: TCP}
{{- end }}

{{- define "noetl.toCollector" -}}
{{- if and .Values.traces.endpoint .Values.networkPolicy.collector -}}
- to:
    {{- toYaml .Values.networkPolicy.collector | nindent 4 }}
  ports:
    - {port: {{ .Values.networkPolicy.collectorPort }}, protocol: TCP}
{{- end }}
{{- end }}

{{- define "noetl.fromMonitoring" -}}
{{- with .Values.networkPolicy.monitoring -}}
- from:
    {{- toYaml . | nindent 4 }}
  ports:
    - {port: 9464, protocol: TCP}
{{- end }}
{{- end }}

{{/* The policy of a pod, besides DNS and metrics. Takes its object, with the rules `ingress` and `egress`. */}}
{{- define "noetl.policy" -}}
{{- if .root.Values.networkPolicy.enabled }}
{{- $own := .values.networkPolicy -}}
{{- $ingress := concat (.ingress | default list) $own.ingress -}}
{{- if (first .containers).ports }}{{ $ingress = concat $ingress (include "noetl.fromMonitoring" .root | fromYamlArray) }}{{ end }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "noetl.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "noetl.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- with $ingress }}
  ingress:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  egress:
    {{- concat (include "noetl.toDns" .root | fromYamlArray) .egress $own.egress | toYaml | nindent 4 }}
{{- end }}
{{- end }}
