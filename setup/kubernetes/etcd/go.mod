// etcd, as the tests of the fleet build it: Debian 12's does not serve the lists that Kubernetes streams.
module twinprobe.dev/setup/etcd

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.6.16
