#!/usr/bin/env bash
# PID 1 of the namespaces that run.sh made: lays out a root of its own, and becomes systemd on it.
set -euo pipefail

root=$WORK/root
mkdir -p "$root" "$WORK/layers"/{upper,work,state,postgres} # which a second boot finds as the first one left them
mount -t overlay -o "lowerdir=/,upperdir=$WORK/layers/upper,workdir=$WORK/layers/work" none "$root"

# Beneath them is what an overlay can't be on, or what is new.
mount -t proc none "$root/proc"
mount -t sysfs -o ro none "$root/sys"
mount -t tmpfs -o mode=755 none "$root/run"
mount -t tmpfs none "$root/tmp"
mount -t tmpfs -o mode=755 none "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 none "$root/dev/pts"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do ln -s "${link#*:}" "$root/dev/${link%%:*}"; done
for device in null zero full random urandom tty loop-control; do [ ! -e "/dev/$device" ] || cp -a "/dev/$device" "$root/dev/$device"; done
# The kernel adds loop devices as they are asked for; nobody makes their nodes here.
if [ -e /dev/loop-control ]; then for number in {0..255}; do mknod -m 0660 "$root/dev/loop$number" b 7 "$number"; done; fi
ln -s /dev/null "$root/dev/console"

# Cgroups as the machine has them, from the new namespace's roots on.
mount -t tmpfs -o mode=755 none "$root/sys/fs/cgroup"
if [ "$LAYOUT" = unified ] || [ "$(wc -l <"$WORK/hierarchies")" = 1 ]; then
    umount "$root/sys/fs/cgroup"
    mount -t cgroup2 none "$root/sys/fs/cgroup"
else
    while read -r where type options; do
        folder=$root/sys/fs/cgroup/$(basename "$where")
        mkdir "$folder"
        if [ "$type" = cgroup2 ]; then mount -t cgroup2 none "$folder"; else mount -t cgroup -o "${options#rw,relatime,}" none "$folder"; fi
    done <"$WORK/hierarchies"
fi

# Its own state, on a file system that takes overlays and id-mapped mounts; the programs that were built, and an image.
state=$root/var/lib/agent-sandbox
if [ ! -e "$WORK/made" ]; then
    rm -rf "$state" "$root/var/lib/postgresql" "$root/etc/agent-sandbox" "$root/etc/credstore"
    mkdir -p "$state" "$root/var/lib/postgresql" "$root/built"
fi
mount --bind "$WORK/layers/state" "$state"
mount --bind "$WORK/layers/postgres" "$root/var/lib/postgresql"
mount --bind "$O" "$root/built"
mkdir -p "$state/images/base"
mount --bind "$IMAGE" "$state/images/base"

make_system() {
    # Units of this machine are not ours to start: of systemd's own, those that make users, folders and the journal.
    cd "$root/lib/systemd/system"
    rm -rf "$root"/etc/systemd/system/* "$root"/lib/systemd/system-generators/* "$root"/etc/systemd/system-generators ./*.wants "$root/etc/fstab"
    mkdir -p sysinit.target.wants sockets.target.wants
    for unit in systemd-journald.service systemd-tmpfiles-setup.service systemd-sysusers.service; do ln -s "../$unit" sysinit.target.wants/; done
    for unit in systemd-journald.socket systemd-journald-dev-log.socket; do ln -s "../$unit" sockets.target.wants/; done
    # Ours alone, so that nothing of the machine's is made or removed.
    find "$root/usr/lib/tmpfiles.d" "$root/etc/tmpfiles.d" "$root/usr/lib/sysusers.d" "$root/etc/sysctl.d" -type f -delete 2>/dev/null || true
    sed -i '/^sandbox-server:/d' "$root/etc/passwd" "$root/etc/group" "$root/etc/shadow" "$root/etc/gshadow" 2>/dev/null || true

    make --no-print-directory -C "$TOP" install O="$O" DESTDIR="$root" >/dev/null
    cp "$TOP/tests/units/client.py" "$root/client.py"
    cp "$TOP"/tests/units/postgresql.service "$root/etc/systemd/system/"
    cat >"$root/etc/systemd/system/default.target" <<'END'
[Unit]
Description=What the test starts
Requires=basic.target multi-user.target
After=basic.target
AllowIsolate=yes
END
    # Ids that no other supervisor of this machine has, and disks that outlive a boot though this root is in memory; the page's cp
    # leaves the file as it is.
    mkdir -p "$root/etc/agent-sandbox"
    { cat "$TOP/container/systemd/supervisor.env.example" && printf 'ID_BASE=3500000000\nSANDBOXES_MAX=500\n'; } >"$root/etc/agent-sandbox/supervisor.env"
    if [ -e /dev/loop-control ]; then disks='STORAGE=image'; else disks=$'STORAGE=plain\nQUOTA_REQUIRED=0'; fi
    printf '%s\n' "$disks" >>"$root/etc/agent-sandbox/supervisor.env"
}
[ -e "$WORK/made" ] || make_system
touch "$WORK/made"
# Where version 1 has the controllers, version 2 has none.
if [ "$LAYOUT" = unified ] && [ "$(wc -l <"$WORK/hierarchies")" != 1 ]; then echo CGROUPS_REQUIRED=0 >>"$root/etc/agent-sandbox/supervisor.env"; fi

ip link set lo up
cd "$root"
mkdir -p "$root/old"
mount --make-private "$root" # pivot_root(2) wants it so
pivot_root . old
exec chroot . /bin/sh -c 'umount -l /old && rmdir /old && mount --make-rshared /; export container=units-test; exec /lib/systemd/systemd --system --log-target=console --show-status=0 </dev/null'
