{{/* The metadata of a pod template. Takes (list root component annotations). */}}
{{- define "noetl.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "noetl.labels" (list $root (index . 1)) | nindent 2 }}
annotations:
  {{- if $root.Values.grants }}
  noetl/grants: {{ sha256sum $root.Values.grants }}
  {{- end }}
  kubectl.kubernetes.io/default-container: {{ regexReplaceAll "^pool-.*" (index . 1) "worker" }}
  {{- with index . 2 }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{/* What every pod has. Takes (list root component account). */}}
{{- define "noetl.podBase" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ index . 2 }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Where a pod of a Deployment runs. Takes (list root component values). */}}
{{- define "noetl.scheduling" -}}
{{- $values := index . 2 -}}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ (index $ 0).Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "noetl.selector" (list (index $ 0) (index $ 1)) | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
{{- with index $values $key }}
{{ $key }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every container has besides its command, environment and probes. Takes (list root own-image resources), and of
a pool its values. */}}
{{- define "noetl.container" -}}
image: {{ include "noetl.image" (list (index . 0) (index . 1)) }}
imagePullPolicy: {{ (index . 0).Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  {{- if gt (len .) 3 }}
  {{- range $field, $profile := pick (index . 3) "seccompProfile" "appArmorProfile" }}
  {{- if $profile }}
  {{ $field }}: {type: Localhost, localhostProfile: {{ $profile }}}
  {{- end }}
  {{- end }}
  {{- end }}
resources:
  {{- toYaml (index . 2) | nindent 2 }}
{{- end }}

{{/* The probes, of the status address, which load cannot reach. What waits for NATS or Postgres lives, and is not ready. */}}
{{- define "noetl.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: status}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: status}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: status}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{/* The environment of every process. Takes (list root identity). */}}
{{- define "noetl.environment" -}}
{{- $values := (first .).Values -}}
- {name: NOETL_NATS_URL, value: {{ $values.nats.url | quote }}}
- name: NOETL_NATS_NKEY
  valueFrom: {secretKeyRef: {name: {{ $values.nats.seedsSecret }}, key: {{ last . }}.nk}}
- {name: NOETL_LOG_LEVEL, value: {{ $values.log.level }}}
- {name: NOETL_LOG_FORMAT, value: {{ $values.log.format }}}
{{- if $values.trust.configMap }}
- {name: SSL_CERT_FILE, value: /etc/noetl/trust/{{ $values.trust.key }}}
{{- end }}
{{- end }}

{{/* Takes (list root user). */}}
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

{{/* The keys that servers and gateways share. */}}
{{- define "noetl.keys" -}}
- name: NOETL_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.keys.secret }}, key: access}}
- name: NOETL_CREDENTIAL_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.keys.secret }}, key: credential}}
- name: NOETL_CREDENTIAL_OLD_KEYS
  valueFrom: {secretKeyRef: {name: {{ .Values.keys.secret }}, key: credential-old, optional: true}}
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
{{- end }}

{{- define "noetl.mounts" -}}
- {name: temporary, mountPath: /tmp}
{{- if .Values.trust.configMap }}
- {name: trust, mountPath: /etc/noetl/trust, readOnly: true}
{{- end }}
{{- end }}

{{/* A ServiceAccount without rights and without a token. Takes (list root component name). */}}
{{- define "noetl.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 2 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "noetl.labels" (list (index . 0) (index . 1)) | nindent 4 }}
automountServiceAccountToken: false
{{- end }}

{{/* One pod at a time may be evicted, and one that is not ready always. Takes (list root component name). */}}
{{- define "noetl.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 2 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "noetl.labels" (list (index . 0) (index . 1)) | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "noetl.selector" (list (index . 0) (index . 1)) | nindent 6 }}
{{- end }}

{{/* Takes (list root component name min max percent). */}}
{{- define "noetl.cpuScaling" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ index . 2 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "noetl.labels" (list (index . 0) (index . 1)) | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ index . 2 }}}
  minReplicas: {{ (index . 3).minReplicas }}
  maxReplicas: {{ (index . 3).maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ (index . 3).cpuPercent }}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 300}
{{- end }}
