#!/usr/bin/env bash
# Build an image for sandboxes from Debian packages: base-image.sh [--fresh] IMAGES_DIR [NAME]
#
#   --fresh            build, even if the cache has one
#   IMAGE_PACKAGES     a file with the packages, one a line (default: image-packages.txt beside this script)
#   IMAGE_CACHE_DIR    built images by content of what they are made from (default: /var/cache/agent-sandbox)
#
# The packages come from the Debian archives that this host's apt uses, with its proxies and certificates. The image appears under
# its name in one step, complete, and is never changed afterwards.
set -euo pipefail
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages=${IMAGE_PACKAGES:-$here/image-packages.txt}
cache=${IMAGE_CACHE_DIR:-/var/cache/agent-sandbox}
fresh=
work=
target=

die() { printf 'base image: %s\n' "$*" >&2; exit 1; }
say() { printf 'base image: %s\n' "$*" >&2; }

cleanup() { rm -rf --one-file-system -- ${work:+"$work"} ${target:+"$target"}; }
trap cleanup EXIT
trap 'exit 143' HUP INT TERM

if [ "${1:-}" = --fresh ]; then fresh=1; shift; fi
[ $# = 1 ] || [ $# = 2 ] || die "usage: base-image.sh [--fresh] IMAGES_DIR [NAME]"
images=$1
name=${2:-base}
[[ $name =~ ^[a-z0-9][a-z0-9._-]{0,63}$ ]] || die "a name has lower-case letters, digits, . _ and -, and starts with a letter or digit"
[ "$(id -u)" = 0 ] || die "only root can build an image: its files belong to several users"
[ -r "$packages" ] || die "cannot read the list of packages, $packages"

mkdir -p "$images" "$cache"
images=$(cd "$images" && pwd)
cache=$(cd "$cache" && pwd)
[ -n "$fresh" ] || [ ! -d "$images/$name" ] || exit 0

list=$(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$packages" | sort -u)
include=$(printf '%s' "$list" | tr '\n' ',')
[ -n "$include" ] || die "$packages names no package"

os_release() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" /etc/os-release; }

# Debian's own archives among the sources of this host; others may have nothing that fits, or be slow.
sources() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(ORIGIN) $(COMPONENT) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "main" { print $3, $4, $5, $6 }' | sort -u
}

build() {
    local target=$1 log=$2 suite from
    command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
    from=$(sources)
    if [ -z "$from" ]; then
        apt-get -q update >>"$log" 2>&1 || die "apt-get update failed: $(tail -n 3 "$log")"
        from=$(sources)
    fi
    [ -n "$from" ] || die "apt of this host has no Debian archive with main among its sources; add one under /etc/apt/sources.list.d"
    suite=$(os_release VERSION_CODENAME)
    printf '%s\n' "$from" >"$work/sources.list"
    {
        apt-config dump | grep -E '^Acquire::(http|https|Proxy|Retries|Check-|ForceIPv|Max-FutureTime)' || true
        printf 'Acquire::Languages "none";\nDir::Etc::netrc "/etc/apt/auth.conf";\nDir::Etc::netrcparts "/etc/apt/auth.conf.d";\n'
    } >"$work/apt.conf"
    # What only people read stays out; licences stay in.
    mmdebstrap --mode=root --format=directory --variant=minbase --include="$include" \
        --aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/lintian/*' \
        "$suite" "$target" "$work/sources.list" >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        die "mmdebstrap failed (above: the end of its log). It needs the network that apt uses; try: apt-get update"
    }
    finish "$target"
}

# What the build left behind, and what every image has.
finish() {
    local root=$1
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/log/* "$root"/tmp/* \
        "$root"/usr/lib/python3*/test "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap
    # Credentials of this host's archives are none of the sandbox's business.
    find "$root/etc/apt" -name '*.list' -exec sed -i -E 's#://[^/@ ]+@#://#' {} +
    : >"$root/etc/machine-id"
    # Each sandbox makes its own, which is cheaper than to replace some.
    rm -f "$root/etc/hostname" "$root/etc/resolv.conf" "$root/etc/hosts"
    grep -q '^sandbox:' "$root/etc/passwd" || {
        printf 'sandbox:x:1000:1000::/workspace:/bin/bash\n' >>"$root/etc/passwd"
        printf 'sandbox:x:1000:\n' >>"$root/etc/group"
        printf 'sandbox:!:19000::::::\n' >>"$root/etc/shadow"
        printf 'sandbox:!::\n' >>"$root/etc/gshadow"
    }
    mkdir -p "$root/workspace"
    find "$root/dev" -mindepth 1 -delete
}

key=$({ printf '%s\n' "$list"; cat "${BASH_SOURCE[0]}"; os_release VERSION_CODENAME; dpkg --print-architecture; } | sha256sum | cut -c1-16)

# One builds; whoever waits takes the result.
exec 9>"$cache/lock"
flock 9
cached=$cache/image-$key
[ -n "$fresh" ] || [ ! -d "$images/$name" ] || exit 0
find "$cache" -maxdepth 1 -name 'image-*' -mtime +60 ! -path "$cached" -exec rm -rf --one-file-system -- {} +
if [ -n "$fresh" ] || [ ! -d "$cached" ]; then
    rm -rf --one-file-system -- "$cache"/tmp.*
    work=$(mktemp -d "$cache/tmp.XXXXXX")
    say "building from Debian packages: $(printf '%s' "$list" | tr '\n' ' ')"
    begin=$SECONDS
    build "$work/root" "$work/log"
    chmod 0755 "$work/root"
    rm -rf --one-file-system -- "$cached"
    mv -T "$work/root" "$cached"
    say "built in $((SECONDS - begin)) s, $(du -sm "$cached" | cut -f1) MiB"
fi

touch "$cached"
# Images of several folders share their files: nobody ever writes to them.
target=$(mktemp -d "$images/.new.XXXXXX")
cp -al "$cached/." "$target/" 2>/dev/null || {
    rm -rf --one-file-system -- "$target"
    mkdir "$target"
    # Its first complaint is enough: on a full disk there is one for each file.
    cp -a --reflink=auto "$cached/." "$target/" 2>&1 | head -n 1 >&2 || die "the image cannot be copied to $images"
}
chmod 0755 "$target"
# What it replaces stays for the sandboxes that stand on it; sandboxctl image prune removes it.
# A link leads to a version in the store, which stays there.
if [ -L "$images/$name" ]; then
    rm -f -- "$images/$name"
elif [ -d "$images/$name" ]; then
    mv -T "$images/$name" "$(mktemp -d "$images/.old.XXXXXX")"
fi
mv -T "$target" "$images/$name"
