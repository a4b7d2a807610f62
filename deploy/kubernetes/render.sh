#!/bin/sh
# render.sh HELM: writes the manifests of the chart with its defaults to standard output, for users without helm.
set -eu
cat <<'EOF'
# Rendered from deploy/helm/twinprobe by `make manifests`: change the chart, not this file. Set `image:` to your image, then
#   kubectl apply -f deploy/kubernetes/twinprobe.yaml
# Clients reach a node through its Unix socket:
#   kubectl -n twinprobe exec -i ds/twinprobe -- twinprobe list
# Probes for all nodes are keys of the ConfigMap twinprobe-probes.
apiVersion: v1
kind: Namespace
metadata:
  name: twinprobe
  labels:
    # Pod security standards allow hostNetwork, hostPath and the capabilities below only at the level "privileged".
    pod-security.kubernetes.io/enforce: privileged
EOF
"$1" template twinprobe "$(dirname "$0")/../helm/twinprobe" --namespace twinprobe | grep -v 'app.kubernetes.io/managed-by'
