#!/bin/sh
# systemd.sh DIRECTORY BINARY UNIT: runs the unit under its own systemd, in its own namespaces, and does the work of an
# operator. Call it as the first process of new process, mount, cgroup and network namespaces.
set -eu
directory=$1 binary=$2 unit=$3
mount --make-rprivate /
# The machine's hierarchies of cgroups have other owners.
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# The unit's directory of pins is new, as after a boot, and disappears with these namespaces.
mount -t bpf -o mode=0700 bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/tmp
mkdir -p /run/systemd/system/twinprobe.service.d /run/bin
cp "$binary" /run/bin/twinprobe
cp "$unit" /run/systemd/system/twinprobe.service
cat >/run/systemd/system/twinprobe.service.d/try.conf <<EOF
[Unit]
DefaultDependencies=no
[Service]
# Only the path of the binary differs from the unit.
ExecStart=
ExecStart=/run/bin/twinprobe serve
StandardError=append:$directory/daemon
Restart=no
EOF
cat >/run/systemd/system/try.target <<EOF
[Unit]
DefaultDependencies=no
Wants=twinprobe.service try.service
EOF
cat >/run/systemd/system/try.service <<EOF
[Unit]
DefaultDependencies=no
After=twinprobe.service
[Service]
Type=oneshot
ExecStart=/bin/sh $directory/inside
StandardOutput=append:$directory/output
StandardError=append:$directory/output
ExecStopPost=/bin/systemctl exit
EOF
cat >"$directory/inside" <<EOF
set -eux
tp() { /run/bin/twinprobe "\$@"; }
ready() { i=0; until tp list; do i=\$((i + 1)); [ \$i -lt 100 ]; sleep 0.1; done; }
ready
tp capabilities
grep -E 'Cap|Seccomp:|NoNewPrivs|Umask' "/proc/\$(systemctl show twinprobe -p MainPID --value)/status"
tp apply -f $directory/probe.json
tp metrics p
systemctl restart twinprobe
ready
tp metrics p
tp delete p
systemctl show twinprobe -p MemoryMax -p TasksMax -p LimitMEMLOCK -p OOMPolicy
systemctl stop twinprobe
echo it works
EOF
export container=podman
exec "$(command -v /lib/systemd/systemd || command -v /usr/lib/systemd/systemd)" \
    --system --unit=try.target --log-target=null
