{{- define "twinprobe.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "twinprobe.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "twinprobe.labels" -}}
{{ include "twinprobe.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "twinprobe.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "twinprobe.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "twinprobe.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "twinprobe.priorityClass" -}}
{{ .Values.priorityClass.name | default (ternary (include "twinprobe.fullname" .) "" .Values.priorityClass.create) }}
{{- end }}

{{- define "twinprobe.tlsSecret" -}}
{{ .Values.api.tls.secretName | default (printf "%s-tls" (include "twinprobe.fullname" .)) }}
{{- end }}

{{- define "twinprobe.probes" -}}
{{ .Values.probesConfigMap | default (printf "%s-probes" (include "twinprobe.fullname" .)) }}
{{- end }}

{{/* The names of the Service, which clients may use in `Host`. */}}
{{- define "twinprobe.hosts" -}}
{{- $service := printf "%s.%s.svc" (include "twinprobe.fullname" .) .Release.Namespace -}}
{{- $hosts := list $service (printf "%s.cluster.local" $service) -}}
{{ concat $hosts .Values.api.hosts | uniq | toJson }}
{{- end }}

{{/* The configuration of the stream: its windows are those of the daemon beside it. */}}
{{- define "twinprobe.stream" -}}
{{- $from := dict "servers" (list "unix:/run/twinprobe/twinprobe.sock") "probes" (list "*") -}}
{{- $listen := printf "%s:%v" (ternary .Values.metrics.address "127.0.0.1" .Values.metrics.expose) .Values.stream.metricsPort -}}
{{ mergeOverwrite (dict "name" "stream" "from" $from "listen" $listen) (deepCopy .Values.stream.config) | toYaml }}
{{- end }}

{{/* The port of the stream's /metrics. */}}
{{- define "twinprobe.streamPort" -}}
{{ regexFind "[0-9]+$" (.Values.stream.config.listen | default (printf ":%v" .Values.stream.metricsPort)) }}
{{- end }}

{{/* Values that do not fit together. */}}
{{- define "twinprobe.check" -}}
{{- with .Values }}
{{- if and .api.enabled (not .api.tls.secretName) (not .api.tls.certManager.enabled) }}
{{- fail "api.enabled needs api.tls.secretName or api.tls.certManager.enabled: a daemon that other machines reach speaks TLS" }}
{{- end }}
{{- if and .api.enabled (not .api.accessSecret) (not .api.clientCASecret) }}
{{- fail "api.enabled needs api.accessSecret (tokens) or api.clientCASecret (certificates of clients)" }}
{{- end }}
{{- if and .api.tls.certManager.enabled (not .api.tls.certManager.issuerRef.name) }}
{{- fail "api.tls.certManager.enabled needs api.tls.certManager.issuerRef.name" }}
{{- end }}
{{- if and .api.clientRoles (not .api.accessSecret) }}
{{- fail "api.clientRoles needs api.accessSecret, which has the file" }}
{{- end }}
{{- if and (or .metrics.podMonitor.enabled .metrics.annotations) (not .metrics.expose) }}
{{- fail "metrics.podMonitor and metrics.annotations need metrics.expose: Prometheus can't reach 127.0.0.1 of a node" }}
{{- end }}
{{- if and .stream.enabled (not .stream.config.to) }}
{{- fail "stream.enabled needs stream.config.to, the receivers: docs/how-to/streams.md has them" }}
{{- end }}
{{- if and .fleet.pods (not (and .fleet.enabled .hostNetwork)) }}
{{- fail "fleet.pods needs fleet.enabled and hostNetwork: the host's side of pods' interfaces is in the node's network namespace" }}
{{- end }}
{{- if and .fleet.services (not .fleet.pods) }}
{{- fail "fleet.services needs fleet.pods: the agents tell Services with the pods" }}
{{- end }}
{{- if .fleet.rules.enabled }}
{{- if not (and .fleet.enabled .api.enabled .service.enabled) }}
{{- fail "fleet.rules.enabled needs fleet.enabled, api.enabled and service.enabled: the operator reaches the daemons over their API" }}
{{- end }}
{{- if not .fleet.rules.tokenSecret }}
{{- fail "fleet.rules.enabled needs fleet.rules.tokenSecret, whose key `token` is a token with the role operator" }}
{{- end }}
{{- if not (or .fleet.rules.caSecret .api.tls.certManager.enabled) }}
{{- fail "fleet.rules.enabled needs fleet.rules.caSecret, whose key `ca.crt` has the authorities of the daemons' certificates" }}
{{- end }}
{{- end }}
{{- if and .probes .probesConfigMap }}
{{- fail "probes and probesConfigMap exclude each other; give one of them" }}
{{- end }}
{{- end }}
{{- end }}
