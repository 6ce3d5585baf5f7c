#!/usr/bin/env bash
# The units under a systemd of their own: run.sh BUILD IMAGE. BUILD has the programs, IMAGE is the root directory of sandboxes.
#
# This machine's root, covered by an overlay that is thrown away, gets `make install`; a systemd is PID 1 of new namespaces and cgroups
# on it, with a PostgreSQL. Nothing of it reaches the machine, and what is left at the end is a fault. Status 77: it can't run here, and
# the last line says why. UNITS_TEST_SHELL=1 opens a shell beside that systemd at the end.
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$top/tests/units

skip() { echo "units: skipped: $*"; exit 77; }
say() { printf 'units: %s\n' "$*"; }

[ "$(id -u)" = 0 ] || skip "only root starts a systemd"
build=$(cd "${1:?}" && pwd) image=$(cd "${2:?}" && pwd -P)
for program in /lib/systemd/systemd systemctl unshare nsenter setpriv python3; do
    command -v "$program" >/dev/null || skip "$program is not installed"
done
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || skip "PostgreSQL is not installed"
grep -qw overlay /proc/filesystems || skip "this kernel has no overlayfs"

name=units-test-$$
work=$(mktemp -d "/dev/shm/$name.XXXXXX") || skip "no folder under /dev/shm"
failed=0 passed=0 outer='' one=''

# Every hierarchy of cgroups that is mounted here, one a line: where, and how to mount it.
hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2, $3, $4 }' /proc/self/mounts; }

# Nothing of it stays: its PID 1 takes all its processes along, and its mounts go with its namespace.
clean() {
    [ -z "$outer" ] || kill -KILL "$outer" 2>/dev/null
    remove_cgroups
    rm -rf --one-file-system -- "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

hierarchies >"$work/hierarchies"
[ -s "$work/hierarchies" ] || skip "no cgroups are mounted"

# --- PID 1 ---------------------------------------------------------------------------------------------------------------

export O=$build IMAGE=$image WORK=$work TOP=$top

make_cgroups() {
    local where file
    while read -r where _; do
        mkdir "$where/$name" 2>/dev/null || skip "no cgroup can be made in $where"
        # Version 1 lets nobody into a set without processors and memory.
        for file in cpuset.cpus cpuset.mems; do
            [ ! -e "$where/$file" ] || cat "$where/$file" >"$where/$name/$file"
        done
    done <"$work/hierarchies"
}

remove_cgroups() {
    local where tries
    while read -r where _; do
        for tries in {1..100}; do
            find "$where/$name" -depth -type d -exec rmdir {} + 2>/dev/null
            [ -d "$where/$name" ] || break
            [ "$tries" -lt 50 ] || sleep 0.1
        done
    done < <(hierarchies)
}

# Start a systemd, with cgroups as this machine has them (host) or version 2 alone (unified).
boot() {
    local tries
    make_cgroups
    (
        while read -r where _; do
            echo "$BASHPID" >"$where/$name/cgroup.procs" || exit 1
        done <"$work/hierarchies"
        LAYOUT=$1 exec unshare --fork --kill-child --pid --mount --net --ipc --uts --cgroup --propagation private -- "$here/inside.sh"
    ) >"$work/console" 2>&1 &
    outer=$!
    disown "$outer" # whose end by SIGKILL bash would tell
    for ((tries = 0; tries < 200; tries++)); do
        one=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null)
        one=${one%% *}
        [ -z "$one" ] || [ "$(cat "/proc/$one/comm" 2>/dev/null)" != systemd ] || [ ! -S "/proc/$one/root/run/systemd/private" ] || return 0
        kill -0 "$outer" 2>/dev/null || { tail -n 20 "$work/console"; skip "no systemd starts in namespaces here; its output is above"; }
        sleep 0.1
    done
    tail -n 40 "$work/console"
    skip "the systemd in namespaces does not come up"
}

# As a power switch does: everything at once, with nobody told.
power_off() {
    kill -KILL "$outer"
    while kill -0 "$outer" 2>/dev/null; do sleep 0.05; done
    remove_cgroups
}

inside() { nsenter --target "$one" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin O=/built "$@"; }

# --- what must hold ------------------------------------------------------------------------------------------------------

holds() { # a sentence, and a command that succeeds
    local sentence=$1
    shift
    if "$@" >"$work/output" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'units: FAILED: %s\n' "$sentence"
        tail -n 3 "$work/output" | sed 's/^/    /'
    fi
}

boot host
# shellcheck source=tests/units/checks.sh
. "$here/checks.sh"

if [ "$failed" != 0 ]; then
    say "the units' logs:"
    inside journalctl --no-pager -q -o short-monotonic -n 60 | cut -c1-300
fi
[ -z "${UNITS_TEST_SHELL:-}" ] || inside bash
say "$passed passed, $failed failed"
[ "$failed" = 0 ]
