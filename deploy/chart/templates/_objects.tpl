{{/* Takes the object of a role with its `containers`, and `replicas` where nothing scales it. */}}
{{- define "noetl.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "noetl.metadata" (merge (pick .values "annotations" "labels") (omit . "annotations" "labels")) | nindent 2 }}
spec:
  revisionHistoryLimit: {{ .values.revisionHistoryLimit }}
  {{- with .values.minReadySeconds }}
  minReadySeconds: {{ . }}
  {{- end }}
  strategy:
    {{- ternary (pick .values.updateStrategy "type") .values.updateStrategy (eq .values.updateStrategy.type "Recreate") | toYaml | nindent 4 }}
  selector:
    matchLabels:
      {{- include "noetl.selector" . | nindent 6 }}
  {{- if hasKey . "replicas" }}
  replicas: {{ .replicas }}
  {{- end }}
  template:
    {{- include "noetl.pod" (merge (dict "isSpread" true) .) | nindent 4 }}
{{- end }}

{{/* The name of the ServiceAccount of a pod. Takes the object of a role; `account` is the one of another role. */}}
{{- define "noetl.accountName" -}}
{{ .values.serviceAccount.name | default .account | default .name }}
{{- end }}

{{/* A ServiceAccount without rights and without a token. Takes the object of a role. */}}
{{- define "noetl.account" -}}
{{- with .values.serviceAccount }}
{{- if .create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- $annotations := merge dict .annotations ($.annotations | default dict) }}
  {{- include "noetl.metadata" (merge (dict "name" (include "noetl.accountName" $) "annotations" $annotations "labels" .labels) (pick $ "root" "component")) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
{{- end }}
{{- end }}

{{/* One pod at a time may be evicted, and one that is not ready always. Takes the object of a role. */}}
{{- define "noetl.disruption" -}}
{{- with .values.podDisruptionBudget }}
{{- if .enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "noetl.metadata" $ | nindent 2 }}
spec:
  {{- if kindIs "invalid" .minAvailable }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- else }}
  minAvailable: {{ .minAvailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "noetl.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Scales a Deployment by CPU, or has KEDA do so. Takes the object of a role, with `scaledBy` and KEDA's `triggers`. */}}
{{- define "noetl.scaling" -}}
{{- $scaling := .values.autoscaling -}}
{{- if eq .scaledBy "cpu" }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "noetl.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ max 1 (int $scaling.minReplicas) }}
  maxReplicas: {{ $scaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ $scaling.cpuPercent }}}
  behavior:
    {{- include "noetl.behavior" $scaling | nindent 4 }}
{{- else if eq .scaledBy "keda" }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "noetl.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {name: {{ .name }}}
  minReplicaCount: {{ $scaling.minReplicas }}
  maxReplicaCount: {{ $scaling.maxReplicas }}
  pollingInterval: 15
  cooldownPeriod: {{ $scaling.cooldownSeconds }}
  fallback: # while what is asked does not answer
    failureThreshold: 4
    replicas: {{ max 1 (int $scaling.minReplicas) }}
    behavior: currentReplicasIfHigher
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- include "noetl.behavior" $scaling | nindent 8 }}
  triggers:
    {{- toYaml .triggers | nindent 4 }}
{{- end }}
{{- end }}

{{/* How fast a HorizontalPodAutoscaler scales. Takes `autoscaling` of a role. */}}
{{- define "noetl.behavior" -}}
{{- $behavior := dict "scaleDown" (dict "stabilizationWindowSeconds" .cooldownSeconds) -}}
{{- mergeOverwrite $behavior (.behavior | default dict | deepCopy) | toYaml }}
{{- end }}

{{/*
A Deployment with what belongs to it. Takes the object of a role, with `process`: the name of a template that says what
noetl.pod, noetl.policy and noetl.scaling need.
*/}}
{{- define "noetl.role" -}}
{{- $role := merge (include .process . | fromYaml) . -}}
{{- with .values.autoscaling }}{{ $_ := set $role "scaledBy" (.by | default (ternary "cpu" "none" (.enabled | default false))) }}{{ end -}}
{{- if eq $role.scaledBy "none" }}{{ $_ := set $role "replicas" .values.replicas }}{{ end -}}
{{ include "noetl.deployment" $role }}
{{- include "noetl.account" $role }}
{{- include "noetl.disruption" $role }}
{{- include "noetl.scaling" $role }}
{{- include "noetl.policy" $role }}
{{- end }}
