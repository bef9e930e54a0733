{{/* The name of the release, with which all names begin. */}}
{{- define "noetl.name" -}}
{{- $name := .Values.nameOverride | default "noetl" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/*
Most templates take an object: a map with `root`, and the `component` and `name` of what is made; of a role also its
`values`, which are its own over podDefaults. This adds these values to one, as `values`. Takes (object own…).
*/}}
{{- define "noetl.setValues" -}}
{{- $values := deepCopy (first .).root.Values.podDefaults -}}
{{- range rest . }}{{ $values = mergeOverwrite $values (deepCopy .) }}{{ end -}}
{{- $_ := set (first .) "values" $values -}}
{{- end }}

{{/* Labels by which a component is selected. Takes an object. */}}
{{- define "noetl.selector" -}}
app.kubernetes.io/name: noetl-stream
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* All labels. Takes (object own…): the chart's own come before any other of the same name. */}}
{{- define "noetl.labels" -}}
{{- $object := first . -}}
{{- $root := $object.root -}}
{{- $labels := include "noetl.selector" $object | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "noetl-stream" -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
{{- range concat (rest . | reverse) (list $root.Values.commonLabels) }}{{ $labels = merge $labels (. | default dict) }}{{ end -}}
{{- toYaml $labels }}
{{- end }}

{{/* The metadata of an object. Takes it, where it may also have `labels` and `annotations`. */}}
{{- define "noetl.metadata" -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- include "noetl.labels" (list . .labels) | nindent 2 }}
{{- with merge dict (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Annotations of what Helm makes before an install or upgrade, and makes again each time. Takes its weight. */}}
{{- define "noetl.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-delete-policy: before-hook-creation
helm.sh/hook-weight: {{ . | quote }}
{{- end }}

{{/* An image. Takes (root own): `own` of a role goes before `image`, and its tag before the digest of that. */}}
{{- define "noetl.image" -}}
{{- $own := last . -}}
{{- $image := mergeOverwrite (deepCopy (first .).Values.image) (deepCopy $own) -}}
{{- if and $own.tag (not $own.digest) }}{{ $_ := set $image "digest" "" }}{{ end -}}
{{- $repository := required "image.repository is needed: where you pushed the image of deploy/Dockerfile" $image.repository -}}
{{- if contains "@" $repository }}
{{- fail (printf "image.repository is %s: put what is behind the @ into image.digest" $repository) }}
{{- else if contains ":" (base $repository) }}
{{- fail (printf "image.repository is %s: put what is behind the colon into image.tag" $repository) }}
{{- end -}}
{{- if $image.digest }}{{ $repository }}@{{ $image.digest }}
{{- else }}{{ $repository }}:{{ $image.tag | default (first .).Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Names that the gateway is called by, with commas between. */}}
{{- define "noetl.hosts" -}}
{{- $service := printf "%s-gateway" (include "noetl.name" .) -}}
{{- $own := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) -}}
{{- $gateway := .Values.gateway -}}
{{- concat $own $gateway.hosts $gateway.ingress.hosts $gateway.httpRoute.hosts | uniq | join "," }}
{{- end }}
