{{/*
A pod template: of every role, of the migration and of `helm test`. Takes the object of a role, with

  containers    programs, each with name, command and, where it needs them, env, ports, lifecycle, volumeMounts and
                securityContext; one with ports has the probes
  before        such containers that end before
  volumes       of these containers
  graceSeconds  how long one takes to end
*/}}
{{- define "noetl.pod" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $grace := $values.terminationGracePeriodSeconds | default 0 | int -}}
{{- if and $grace (lt $grace (int .graceSeconds)) }}
{{- fail (printf "terminationGracePeriodSeconds of %s is %d: it takes up to %d to end" .name $grace (int .graceSeconds)) }}
{{- end -}}
metadata:
  labels:
    {{- include "noetl.labels" (list . $values.podLabels) | nindent 4 }}
  {{- $annotations := dict "kubectl.kubernetes.io/default-container" (first .containers).name }}
  {{- with $root.Values.grants }}{{ $_ := set $annotations "noetl/grants" (sha256sum .) }}{{ end }}
  annotations:
    {{- merge $annotations $values.podAnnotations $root.Values.commonAnnotations | toYaml | nindent 4 }}
spec:
  serviceAccountName: {{ include "noetl.accountName" . }}
  {{- merge (deepCopy ($values.podSpec | default dict)) (dict "automountServiceAccountToken" false "enableServiceLinks" false) | toYaml | nindent 2 }}
  {{- with $values.image.pullSecrets | default $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- include "noetl.scheduling" . | nindent 2 }}
  {{- with $grace | default .graceSeconds }}
  terminationGracePeriodSeconds: {{ . }}
  {{- end }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with .activeDeadlineSeconds }}
  activeDeadlineSeconds: {{ . }}
  {{- end }}
  {{- $before := list }}
  {{- range $values.sidecars }}{{ $before = append $before (merge (dict "restartPolicy" "Always") .) }}{{ end }}
  {{- with concat $before $values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- else }}{{ with .before }}
  initContainers:
  {{- end }}{{ end }}
  {{- range .before }}
    {{- include "noetl.container" (list $ .) | nindent 4 }}
  {{- end }}
  containers:
  {{- range .containers }}
    {{- include "noetl.container" (list $ .) | nindent 4 }}
  {{- end }}
  {{- $volumes := include "noetl.volumes" $root | fromYamlArray }}
  {{- $temporary := dict "name" "temporary" "emptyDir" (dict "sizeLimit" ($values.temporarySize | default "64Mi")) }}
  {{- $volumes = concat (list $temporary) $volumes (.volumes | default list) }}
  {{- include "noetl.entries" (list .name "name" $volumes $values.extraVolumes "volumes") | indent 2 }}
{{- end }}

{{/* A container of a pod. Takes (object container). */}}
{{- define "noetl.container" -}}
{{- $object := first . -}}
{{- $own := last . -}}
{{- $root := $object.root -}}
{{- $values := $object.values -}}
- name: {{ $own.name }}
  image: {{ include "noetl.image" (list $root $values.image) }}
  imagePullPolicy: {{ $values.image.pullPolicy | default $root.Values.image.pullPolicy }}
  command: {{ toJson $own.command }}
  {{- include "noetl.entries" (list $object.name "name" ($own.env | default list) $values.extraEnv "env") | indent 2 }}
  {{- with $values.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.ports }}
  ports:
    {{- toYaml . | nindent 4 }}
  {{- include "noetl.probes" $values | nindent 2 }}
  {{- $lifecycle := $own.lifecycle | default dict }}
  {{- range $hook, $handler := $values.lifecycle }}{{ $_ := set $lifecycle $hook $handler }}{{ end }}
  {{- with $lifecycle }}
  lifecycle:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  securityContext:
    {{- mergeOverwrite (deepCopy $values.securityContext) ($own.securityContext | default dict) | toYaml | nindent 4 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  {{- $mounts := concat (include "noetl.mounts" $root | fromYamlArray) ($own.volumeMounts | default list) }}
  {{- include "noetl.entries" (list $object.name "mountPath" $mounts $values.extraVolumeMounts "volumeMounts") | indent 2 }}
{{- end }}

{{/*
A list of the chart's entries and the operator's, which may not take the place of one; nothing if there are none.
Takes (name key own extra field): the field of the object of that name has both, told apart by the key.
*/}}
{{- define "noetl.entries" -}}
{{- $key := index . 1 -}}
{{- $taken := dict -}}
{{- range index . 2 }}{{ $_ := set $taken (get . $key) true }}{{ end -}}
{{- range index . 3 }}
{{- if hasKey $taken (get . $key) }}{{ fail (printf "%s of %s: the chart sets %s itself" (index $ 4) (first $) (get . $key)) }}{{ end }}
{{- end -}}
{{- with concat (index . 2) (index . 3) }}
{{ dict (index $ 4) . | toYaml }}
{{- end }}
{{- end }}

{{/* Where a pod runs, and as what. Takes the object of a role; that of a Deployment is spread. */}}
{{- define "noetl.scheduling" -}}
{{- $spread := list -}}
{{- if .isSpread -}}
{{- $spread = .values.topologySpreadConstraints -}}
{{- $common := dict "maxSkew" 1 "whenUnsatisfiable" .root.Values.topologySpread.whenUnsatisfiable "matchLabelKeys" (list "pod-template-hash") -}}
{{- range ternary (list "kubernetes.io/hostname" "topology.kubernetes.io/zone") list (empty $spread) }}
{{- $spread = append $spread (merge (dict "topologyKey" .) $common) }}
{{- end -}}
{{- end -}}
{{- range $number, $one := $spread }}
{{- if eq $number 0 }}
topologySpreadConstraints:
{{- end }}
  - {{ merge (deepCopy $one) (dict "labelSelector" (dict "matchLabels" (include "noetl.selector" $ | fromYaml))) | toYaml | nindent 4 | trim }}
{{- end }}
{{- $keys := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "schedulerName" "runtimeClassName" "dnsPolicy" "dnsConfig" "hostAliases" -}}
{{- range $key := $keys }}
{{- with index $.values $key }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The probes, of the status address, which load cannot reach. What waits for NATS or Postgres lives, and is not ready.
Takes the values of a role.
*/}}
{{- define "noetl.probes" -}}
{{- $probes := dict
  "startupProbe" (dict "httpGet" (dict "path" "/livez" "port" "status") "periodSeconds" 2 "timeoutSeconds" 2 "failureThreshold" 60)
  "livenessProbe" (dict "httpGet" (dict "path" "/livez" "port" "status") "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6)
  "readinessProbe" (dict "httpGet" (dict "path" "/readyz" "port" "status") "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2)
-}}
{{- mergeOverwrite $probes (pick . "startupProbe" "livenessProbe" "readinessProbe" | deepCopy) | toYaml }}
{{- end }}
