#!/usr/bin/env bash
# Install the Debian packages of the named sections of packages.txt that are missing: packages.sh SECTION...
#
# Says which, and asks no network when none is.
set -euo pipefail

list=$(dirname "${BASH_SOURCE[0]}")/packages.txt
die() { printf 'packages: %s\n' "$*" >&2; exit 1; }

# The lines of one section.
section() {
    awk -v want="[$1]" '{ sub(/#.*/, ""); gsub(/[ \t]/, "") } /^\[/ { on = $0 == want; seen += on; next } on && NF
        END { exit !seen }' "$list" || die "$list has no section [$1]"
}

installed() {
    local name
    for name in ${1//|/ }; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] && return
    done
    return 1
}

command -v dpkg-query >/dev/null || die "this is no Debian; install what $list names by hand, then build with make all"
missing=()
for part in "$@"; do
    for entry in $(section "$part"); do
        installed "$entry" || missing+=("${entry%%|*}")
    done
done
[ ${#missing[@]} -gt 0 ] || exit 0

printf 'packages: installing %s\n' "${missing[*]}"
as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "these are missing, and only root can install them: ${missing[*]}"
    as_root=(sudo)
    [ -t 0 ] || as_root+=(-n)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for step in update "install --no-install-recommends ${missing[*]}"; do
    # shellcheck disable=SC2086 # the words of a step
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 $step >"$log" 2>&1 </dev/null || {
        tail -n 15 "$log" >&2
        die "apt-get ${step%% *} failed (above: the end of its output)"
    }
done
