#!/bin/sh
# package.sh DIRECTORY: installs the packages of DIRECTORY under its own systemd, in a temporary copy of this system: an
# overlay in memory above the root file system. Call it as the first process of new process and mount namespaces, in
# the network namespace of the interface mon0.
set -eu
directory=$1
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
root=/mnt/root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount -t bpf -o mode=0700 bpf $root/sys/fs/bpf
mount --rbind /dev $root/dev
for path in run var/tmp tmp; do
    mkdir -p $root/$path
    mount -t tmpfs tmpfs $root/$path
done
mkdir -p $root/run/systemd/system $root/run/lock $root/run/shared
mount --bind "$directory" $root/run/shared
rm -rf $root/var/lib/twinprobe
# The index of manual pages is left out, because it takes longer than everything else.
rm -f $root/var/lib/man-db/auto-update
# Only the package's service and the steps below start. Other units of this system or of its packages do not start.
rm -f $root/usr/sbin/policy-rc.d
cat >$root/run/systemd/system/try.target <<EOF
[Unit]
DefaultDependencies=no
Wants=try.service
EOF
cat >$root/run/systemd/system/try.service <<EOF
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
ExecStart=/bin/sh /run/shared/inside
StandardOutput=append:/run/shared/output
StandardError=append:/run/shared/output
ExecStopPost=/bin/systemctl exit
EOF
# The package's unit waits for targets that never come here.
mkdir -p $root/run/systemd/system/twinprobe.service.d
printf '[Unit]\nDefaultDependencies=no\nAfter=\nWants=\n[Service]\nStandardError=append:/run/shared/daemon\n' \
    >$root/run/systemd/system/twinprobe.service.d/zz-try.conf
cat >"$directory/inside" <<'EOF'
set -eux
ready() { i=0; until twinprobe list; do i=$((i + 1)); [ $i -lt 200 ]; sleep 0.1; done; }
await() { i=0; until [ -e "/run/shared/$1" ]; do i=$((i + 1)); [ $i -lt 600 ]; sleep 0.1; done; }
pid() { systemctl show twinprobe -p MainPID --value; }
cd /run/shared
dpkg -P twinprobe 2>/dev/null || true

: installed
dpkg -i 1.deb
ready
systemctl is-enabled twinprobe
getent passwd twinprobe
getent group twinprobe
stat -c '%n %A %U:%G' /run/twinprobe /run/twinprobe/twinprobe.sock /var/lib/twinprobe
dpkg-query -f '${Conffiles}\n' -W twinprobe
zcat /usr/share/man/man1/twinprobe.1.gz | grep -c .
ls /usr/share/bash-completion/completions/twinprobe /usr/share/zsh/vendor-completions/_twinprobe
# The package's user may use the socket.
setpriv --reuid twinprobe --regid twinprobe --clear-groups twinprobe list
twinprobe capabilities | grep '^compiler confined'
twinprobe apply -f probe.json
echo '# mine' >>/etc/default/twinprobe
first=$(pid)
touch counting

: upgraded under traffic
await sending
dpkg -i --force-confdef 2.deb
ready
[ "$(pid)" != "$first" ]
dpkg-query -f '${Version}\n' -W twinprobe
grep -c '^# mine' /etc/default/twinprobe
twinprobe get p | grep -E '"?revision"?: 1'
touch upgraded
await sent
i=0
until twinprobe metrics p -o json >metrics && grep -q "\"value\":$(cat sent)[,}]" metrics; do
    i=$((i + 1)) && [ $i -lt 50 ] && sleep 0.1
done
cat metrics

: removed
ip -details link show mon0 | grep -c 'prog/xdp'
dpkg -r twinprobe
! systemctl is-active twinprobe
! ip -details link show mon0 | grep 'prog/xdp'
ls /etc/default/twinprobe /var/lib/twinprobe/store.sqlite
[ ! -e /usr/bin/twinprobe ]

: installed again
dpkg -i 2.deb
ready
twinprobe list | grep '^p '
ip -details link show mon0 | grep -c 'prog/xdp'

: purged
dpkg -P twinprobe
! ls /etc/default/twinprobe
! ls -d /var/lib/twinprobe
! ls -d /sys/fs/bpf/twinprobe
! ip -details link show mon0 | grep 'prog/xdp'
echo it works
EOF
export container=podman
exec chroot $root "$(readlink -f /lib/systemd/systemd)" --system --unit=try.target --log-target=null
