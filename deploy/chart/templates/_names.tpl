{{- define "noetl.name" -}}
{{- if .Values.nameOverride }}{{ .Values.nameOverride }}
{{- else if contains "noetl" .Release.Name }}{{ .Release.Name }}
{{- else }}{{ printf "%s-noetl" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels by which a component is selected. Takes (list root component). */}}
{{- define "noetl.selector" -}}
app.kubernetes.io/name: noetl-stream
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* All labels of an object of a component. Takes (list root component). */}}
{{- define "noetl.labels" -}}
{{- $root := first . -}}
{{ include "noetl.selector" . }}
app.kubernetes.io/part-of: noetl-stream
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* The image. Takes (list root own), where own may have a tag or a digest. */}}
{{- define "noetl.image" -}}
{{- $image := mergeOverwrite (deepCopy (first .).Values.image) (last .) -}}
{{- $repository := required "image.repository is needed: where you pushed the image of deploy/Dockerfile" $image.repository -}}
{{- if $image.digest }}{{ $repository }}@{{ $image.digest }}
{{- else }}{{ $repository }}:{{ $image.tag | default (first .).Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The values of a pool: its own over the defaults. Takes (list root pool). */}}
{{- define "noetl.pool" -}}
{{- $root := first . -}}
{{- mergeOverwrite (deepCopy $root.Values.poolDefaults) (index $root.Values.pools (last .)) | toYaml }}
{{- end }}

{{/* Names that the gateway is called by, with commas between. */}}
{{- define "noetl.hosts" -}}
{{- $service := printf "%s-gateway" (include "noetl.name" .) -}}
{{- $own := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) -}}
{{- $gateway := .Values.gateway -}}
{{- concat $own $gateway.hosts $gateway.ingress.hosts $gateway.httpRoute.hosts | uniq | join "," }}
{{- end }}
