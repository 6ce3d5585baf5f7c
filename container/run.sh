#!/usr/bin/env bash
# make run: a private PostgreSQL, the supervisor and the server on this machine, until SIGINT or SIGTERM.
#
#   STATE_DIR           all that is kept (default: var)
#   O                   where the programs were built (default: build/release)
#   DATABASE_URL        another PostgreSQL than the private one
#   POSTGRES_OPTIONS    further words for the private one, such as -F
#   IMAGE_CACHE_DIR     built images, shared by all STATE_DIRs (default: /var/cache/agent-sandbox)
#
# and every setting of the server and the supervisor (sandbox-server --help, sandbox-supervisor --help), from the environment or from
# the file .env of the current folder. Once it serves, STATE_DIR/run.env says where and with which credentials.
set -euo pipefail
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
server_user=sandbox-server

say() { printf '%s\n' "run: $*"; }
die() { printf '%s\n' "run: $*" >&2; exit 1; }

# --- what it runs with ----------------------------------------------------------------------------------------------

# KEY=value lines; the environment wins.
load_env_file() {
    local line name value
    while IFS= read -r line || [ -n "$line" ]; do
        [[ $line =~ ^[[:space:]]*(export[[:space:]]+)?([A-Za-z_][A-Za-z0-9_]*)[[:space:]]*=[[:space:]]*(.*)$ ]] || continue
        name=${BASH_REMATCH[2]} value=${BASH_REMATCH[3]}
        if [[ $value =~ ^\"(.*)\"[[:space:]]*(#.*)?$ || $value =~ ^\'(.*)\'[[:space:]]*(#.*)?$ ]]; then
            value=${BASH_REMATCH[1]}
        else
            [[ $value == \#* ]] && value=
            value=${value%%[[:space:]]#*}
            value=${value%"${value##*[![:space:]]}"}
        fi
        [ -n "${!name+set}" ] || export "$name=$value"
    done <"$1"
}
[ -z "${RUN_STAGE:-}" ] && [ -r .env ] && load_env_file .env

: "${STATE_DIR:=var}" "${O:=build/release}" "${PORT:=8000}" "${HOST:=0.0.0.0}"
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "only root can start the supervisor (namespaces, mounts, cgroups): become root, or install sudo"
    RUN_OWNER=$(id -u):$(id -g)
    export STATE_DIR O PORT HOST RUN_OWNER
    if [ -t 0 ]; then exec sudo -E -- "$here/run.sh"; fi
    exec sudo -n -E -- "$here/run.sh"
fi

# Everything it starts lives in a mount namespace of its own, in which STATE_DIR has a short path that the unprivileged server can reach
# also when the checkout is under a home that it may not enter. The namespace ends with its last process, and the mount with it.
if [ -z "${RUN_STAGE:-}" ]; then
    unshare --mount --propagation slave true ||
        die "no mount namespace can be made; this needs root with CAP_SYS_ADMIN (a container needs --privileged)"
    RUN_STAGE=inside exec unshare --mount --propagation slave -- "$here/run.sh"
fi
unset RUN_STAGE

[ -x "$O/sandbox-server" ] || die "$O holds no programs; start me by make run"
programs=$(cd "$O" && pwd)
mkdir -p -- "$STATE_DIR" || die "STATE_DIR cannot be made"
[ -w "$STATE_DIR" ] || die "STATE_DIR, $STATE_DIR, cannot be written to"
state=$(cd "$STATE_DIR" && pwd -P)
runtime=/run/agent-sandbox/$(printf '%s' "$state" | sha256sum | cut -c1-10)
inside=$runtime/state
owner=${RUN_OWNER:-0:0}
unset RUN_OWNER

exec 8>"$state/lock"
flock -n 8 || die "another one runs in $state already"

# --- users and folders ------------------------------------------------------------------------------------------------

make_user() {
    getent passwd "$server_user" >/dev/null ||
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$server_user" ||
        die "the user $server_user cannot be made"
    server_uid=$(id -u "$server_user")
    server_gid=$(id -g "$server_user")
}

make_folders() {
    mkdir -p /run/agent-sandbox "$runtime"
    rm -rf --one-file-system -- "$runtime/postgres" "$runtime/supervisor"
    mkdir -p "$inside"
    mount --bind "$state" "$inside"
    install -d -m 0700 "$state/secrets" "$state/supervisor" "$state/log"
    # Hidden, so that tools which walk a tree (test runners, searches) do not take a whole Debian for part of it.
    install -d -m 0755 "$state/bin" "$state/.images"
    install -d -m 0750 -o "$server_uid" -g "$server_gid" "$state/run" "$state/spool"
    install -d -m 0750 -o 0 -g "$server_gid" "$runtime/supervisor"
    install -m 0755 "$programs"/sandbox-{server,supervisor,init} "$programs/sandboxctl" "$here/base-image.sh" "$state/bin/"
    install -m 0644 "$here/image-packages.txt" "$state/bin/"
    chmod 0755 "$state"
}

# The user ids of two runs on one machine must not overlap: each takes a slot, the one it had before if it can.
take_ids() {
    local slot
    [ -z "${ID_BASE:-}" ] || return 0
    for slot in $(cat "$state/ids" 2>/dev/null) {0..30}; do
        # The first is the default of a supervisor that systemd starts here (container/systemd).
        [ "$slot" != 0 ] || [ ! -d /run/agent-sandbox/supervisor ] || continue
        exec 7>"/run/agent-sandbox/ids.$slot"
        if flock -n 7; then
            printf '%s\n' "$slot" >"$state/ids"
            export ID_BASE=$((1048576 + slot * 2001 * 65536)) # as many ranges as SANDBOXES_MAX, and one
            return
        fi
    done
    die "31 of these run on this machine already; give this one a range of user ids with ID_BASE"
}

# --- secrets -----------------------------------------------------------------------------------------------------------

secrets="OPERATOR_TOKEN METRICS_API_KEY JWT_SECRET ADMIN_API_KEY SEALING_KEY"

# What the environment does not give is made at the first start and kept.
make_secrets() {
    local name file
    for name in $secrets; do
        [ -z "${!name:-}" ] || continue
        file=$state/secrets/$name
        if [ ! -s "$file" ]; then
            (umask 077 && head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n' >"$file.new")
            mv "$file.new" "$file"
        fi
        export "$name=$(cat "$file")"
    done
}

# --- PostgreSQL --------------------------------------------------------------------------------------------------------

as_postgres() { setpriv --reuid postgres --regid postgres --init-groups env -i PATH="$PATH" LC_ALL=C.UTF-8 "$@"; }

postgres_bin() {
    local version=
    [ ! -s "$state/postgres/PG_VERSION" ] || version=$(cat "$state/postgres/PG_VERSION")
    for bin in $(printf '%s\n' /usr/lib/postgresql/"${version:-[0-9]*}"/bin | sort -rV); do
        [ ! -x "$bin/postgres" ] || return 0
    done
    die "PostgreSQL ${version:-14 or newer} is not installed (looked under /usr/lib/postgresql)"
}

make_cluster() {
    [ ! -s "$state/postgres/PG_VERSION" ] || return 0
    rm -rf --one-file-system -- "$state/postgres.new"
    install -d -m 0700 -o postgres -g postgres "$state/postgres.new"
    as_postgres "$bin/initdb" -D "$inside/postgres.new" -U postgres -A peer -E UTF8 --locale=C.UTF-8 >"$state/log/initdb.log" 2>&1 || {
        tail -n 10 "$state/log/initdb.log" >&2
        die "initdb failed"
    }
    mv -T "$state/postgres.new" "$state/postgres"
}

# Who may come in is decided by the user id behind the socket: no password exists.
configure_cluster() {
    install -d -m 0750 -o postgres -g "$server_gid" "$runtime/postgres"
    printf 'local all all peer map=run\n' >"$state/postgres/pg_hba.conf"
    printf 'run %s\n' 'root postgres' 'root sandbox' 'postgres postgres' "$server_user sandbox" >"$state/postgres/pg_ident.conf"
    chown postgres:postgres "$state/postgres/pg_hba.conf" "$state/postgres/pg_ident.conf"
}

# A postmaster that was killed leaves backends that have not noticed yet; the next one would find their shared memory in use and end.
# Its key, and what is attached to it, are in postmaster.pid and proc(5).
wait_for_backends() {
    local segment end=$((SECONDS + 15))
    segment=$(awk 'NR == 7 { print $2 }' "$state/postgres/postmaster.pid" 2>/dev/null) || return 0
    [ -n "$segment" ] || return 0
    while awk -v id="$segment" 'NR > 1 && $2 == id && $7 > 0 { found = 1 } END { exit !found }' /proc/sysvipc/shm && [ "$SECONDS" -lt "$end" ]; do
        sleep 0.1
    done
}

start_postgres() {
    wait_for_backends
    # shellcheck disable=SC2086 # the words of POSTGRES_OPTIONS
    setsid setpriv --reuid postgres --regid postgres --init-groups --pdeathsig INT env -i PATH="$PATH" LC_ALL=C.UTF-8 \
        "$bin/postgres" -D "$inside/postgres" -c "unix_socket_directories=$runtime/postgres" -c listen_addresses= \
        -c max_connections=200 -c password_encryption=scram-sha-256 ${POSTGRES_OPTIONS:-} \
        >>"$state/log/postgres.log" 2>&1 7>&- 8>&- &
    started postgres $!
    wait_until 60 "PostgreSQL" postgres "$bin/pg_isready" -q -h "$runtime/postgres" -U postgres
}

psql_run() { env -i PATH="$PATH" "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$runtime/postgres" -U postgres "$@"; }

make_database() {
    [ "$(psql_run -d postgres -c "SELECT 1 FROM pg_roles WHERE rolname = 'sandbox'")" = 1 ] || psql_run -d postgres -c 'CREATE ROLE sandbox LOGIN'
    [ "$(psql_run -d postgres -c "SELECT 1 FROM pg_database WHERE datname = 'sandbox'")" = 1 ] || psql_run -d postgres -c 'CREATE DATABASE sandbox OWNER sandbox'
    export DATABASE_URL="postgresql://sandbox@/sandbox?host=$runtime/postgres"
}

# --- supervisor and server -------------------------------------------------------------------------------------------

start_supervisor() {
    local drop=() name
    for name in $secrets DATABASE_URL MODEL_API_KEY OPENAI_API_KEY REDIS_URL; do drop+=(-u "$name"); done
    (cd / && exec setsid setpriv --pdeathsig TERM env "${drop[@]}" SUPERVISOR_STATE="$state/supervisor" \
        IMAGES_DIR="$state/.images" INIT_PATH="$state/bin/sandbox-init" SERVER_UID="$server_uid" SERVER_GID="$server_gid" STOP_ON_EXIT=1 \
        "$state/bin/sandbox-supervisor") >>"$state/log/supervisor.log" 2>&1 7>&- 8>&- &
    started supervisor $!
    wait_until 30 "the supervisor" supervisor test -S "$SUPERVISOR_SOCKET"
}

# One command as the server's user, in a folder that it may enter.
as_server() { (cd "$inside/run" && exec setpriv --reuid "$server_uid" --regid "$server_gid" --clear-groups --no-new-privs --pdeathsig TERM env STATE_DIR="$inside" "$@"); }

start_server() {
    # setpriv is named here once more, since setsid cannot start a function.
    (cd "$inside/run" && exec setsid setpriv --reuid "$server_uid" --regid "$server_gid" --clear-groups --no-new-privs --pdeathsig TERM \
        env STATE_DIR="$inside" HOME=/nonexistent "$inside/bin/sandbox-server" serve) >>"$state/log/server.log" 2>&1 7>&- 8>&- &
    started server $!
    wait_until 60 "the server" server answers
}

port_is_taken() {
    local host=${base_url#http://}
    host=${host%:*}
    (exec 3<>"/dev/tcp/${host//[][]/}/$PORT") 2>/dev/null
}

# Another program may listen on the port of another address, and answer: the socket must be the server's.
listens() {
    { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; } |
        awk -v port="$(printf ':%04X' "$PORT")" '$4 == "0A" && substr($2, length($2) - 4) == port { print "socket:[" $10 "]" }' |
        grep -qxF "$(readlink "/proc/${pid_of[server]:-none}"/fd/*)"
}

# Whatever it answers, it serves: ALLOWED_HOSTS may refuse this address.
answers() { listens && [[ $(curl -s -o /dev/null -m 5 -w '%{http_code}' --noproxy '*' "$base_url/api/health") =~ ^[24] ]]; }

probe_address() {
    case $HOST in
    0.0.0.0 | ::) base_url=http://127.0.0.1:$PORT ;;
    *:*) base_url="http://[$HOST]:$PORT" ;;
    *) base_url=http://$HOST:$PORT ;;
    esac
}

# --- what it started ---------------------------------------------------------------------------------------------------

declare -A pid_of=() deaths=() death_at=() log_start=()
stopping=
begun=
tick= # wakes watch_over from time to time

started() {
    pid_of[$1]=$2
    write_pids
}

write_pids() {
    local role
    for role in "${!pid_of[@]}"; do printf '%s=%s\n' "$role" "${pid_of[$role]}"; done >"$state/pids.new"
    mv "$state/pids.new" "$state/pids"
}

alive() { [ -n "${pid_of[$1]:-}" ] && kill -0 "${pid_of[$1]}" 2>/dev/null; }

# wait_until SECONDS WHAT ROLE COMMAND...: the command succeeds while the role's process lives.
wait_until() {
    local seconds=$1 what=$2 role=$3 end
    shift 3
    end=$((SECONDS + seconds))
    until "$@" 2>/dev/null; do
        if ! alive "$role"; then
            [ -z "$begun" ] || return 1 # watch_over sees it
            give_up "$what ended while it started" "$role"
        fi
        [ "$SECONDS" -lt "$end" ] || give_up "$what did not come up within $seconds s" "$role"
        sleep 0.1
    done
}

# What earlier runs logged would only mislead.
give_up() {
    printf '%s\n' "run: $1; the end of $state/log/$2.log:" >&2
    tail -c "+$((${log_start[$2]:-0} + 1))" "$state/log/$2.log" | tail -n 15 >&2 || true
    exit 1
}

# Ask, wait, then force. What it started is its child, so that a pid is never somebody else's.
stop_role() {
    local role=$1 signal=$2 seconds=$3 pid=${pid_of[$1]:-} end
    [ -n "$pid" ] || return 0
    unset "pid_of[$role]"
    kill -"$signal" "$pid" 2>/dev/null || return 0
    end=$((SECONDS + seconds))
    while kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$end" ] && [ "$stopping" != now ]; do sleep 0.05; done
    if kill -0 "$pid" 2>/dev/null; then
        printf '%s\n' "run: $role did not stop within $seconds s and is killed" >&2
        kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
    fi
    wait "$pid" 2>/dev/null || true
}

stop_all() {
    local status=$?
    trap - EXIT
    trap 'stopping=now' HUP INT TERM
    set +e
    [ -n "$stopping" ] || stopping=yes
    [ -z "$begun" ] || say "stopping"
    rm -f "$state/run.env"
    [ -z "$tick" ] || kill "$tick" 2>/dev/null
    [ -z "${pid_of[image]:-}" ] || kill -TERM -- "-${pid_of[image]}" 2>/dev/null
    stop_role image TERM 30
    stop_role server TERM $((${DRAIN_SECONDS:-20} + 10))
    stop_role supervisor TERM 60
    # Images that newer ones replaced: nothing stands on them any more.
    rm -rf --one-file-system -- "$state"/.images/.old.* "$state"/.images/.new.*
    stop_role postgres INT 60
    rm -f "$state/pids"
    umount -l "$inside" 2>/dev/null
    rm -rf --one-file-system -- "$runtime/postgres" "$runtime/supervisor"
    rmdir "$inside" "$runtime" 2>/dev/null
    exit "$status"
}

# A run that was killed took its children with it (PDEATHSIG); they may still be busy ending.
wait_for_previous() {
    local role pid end=$((SECONDS + 90))
    [ -s "$state/pids" ] || return 0
    while IFS='=' read -r role pid; do
        while grep -qsaF "$runtime" "/proc/$pid/environ" "/proc/$pid/cmdline"; do
            [ "$SECONDS" -lt "$end" ] || die "process $pid ($role of an earlier run) does not end"
            sleep 0.1
        done
    done <"$state/pids"
    rm -f "$state/pids"
}

# --- what can be told before anything that takes long ---------------------------------------------------------------------

check_settings() {
    DATABASE_URL=${DATABASE_URL:-postgresql://} as_server "$inside/bin/sandbox-server" --check-config >/dev/null || exit 1
    if port_is_taken; then die "something listens on $base_url already; choose another port with PORT="; fi
}

# Sandboxes have a network where this machine can give them one, and no other supervisor does; a setting of either program overrules it.
choose_network() {
    local why
    if [ -z "${EGRESS:-}" ]; then
        export EGRESS=1
        if grep -q ' @agent-sandbox-egress$' /proc/net/unix; then
            why="another supervisor of this machine has it"
        else
            why=$({ "$state/bin/sandbox-supervisor" --check-config 2>&1 >/dev/null || true; } | sed -n 's/^EGRESS[A-Z0-9_]*:* //p;T;q')
        fi
        [ -z "$why" ] || { EGRESS=0; printf 'run: sandboxes have no network: %s\n' "$why" >&2; }
    fi
    case ${EGRESS,,} in 1 | true | yes | on) : "${SANDBOX_NETWORK:=egress}" ;; *) : "${SANDBOX_NETWORK:=none}" ;; esac
    export SANDBOX_NETWORK
}

# Disks have a size that the kernel holds sandboxes to, where this machine can have any such; QUOTA_REQUIRED=1 insists.
choose_disks() {
    local why
    [ -z "${QUOTA_REQUIRED:-}" ] || return 0
    why=$({ SUPERVISOR_STATE="$state/supervisor" "$state/bin/sandbox-supervisor" --check-config 2>&1 >/dev/null || true; } |
        sed -n 's/^STORAGE=[a-z]*: //p;T;q')
    [ -z "$why" ] || { export QUOTA_REQUIRED=0; printf 'run: sandboxes can fill the disk of this machine: %s\n' "$why" >&2; }
}

# The supervisor decides; this only tells earlier.
check_machine() {
    local found
    found=$(SUPERVISOR_STATE="$state/supervisor" "$state/bin/sandboxctl" doctor 2>/dev/null) ||
        printf '%s\n' "run: this machine may lack what sandboxes need:" "$(grep '^MISSING' <<<"$found")" >&2
}

# --- keys, and where to find them -----------------------------------------------------------------------------------------

key_is_good() { [ "$(curl -s -o /dev/null -m 10 -w '%{http_code}' --noproxy '*' -H "Authorization: Bearer $1" "$base_url/api/auth/check")" != 401 ]; }

make_key() {
    local file=$state/secrets/API_KEY
    if [ -s "$file" ]; then
        api_key=$(cat "$file")
        if key_is_good "$api_key"; then return; fi
    fi
    api_key=$(as_server "$inside/bin/sandboxctl" key create --name "make run") || die "sandboxctl key create failed"
    (umask 077 && printf '%s\n' "$api_key" >"$file.new")
    mv "$file.new" "$file"
}

write_run_env() {
    (
        umask 077
        printf 'SANDBOX_BASE_URL=%s\nSANDBOX_API_KEY=%s\nSANDBOX_OPERATOR_TOKEN=%s\n' "$base_url" "$api_key" "$OPERATOR_TOKEN" >"$state/run.env.new"
    )
    chown "$owner" "$state/run.env.new"
    mv "$state/run.env.new" "$state/run.env"
}

# sandboxctl with the settings of this run.
write_ctl() {
    (
        umask 077
        {
            printf '#!/bin/bash\n'
            printf 'export %s=%q\n' DATABASE_URL "$DATABASE_URL" SUPERVISOR_SOCKET "$SUPERVISOR_SOCKET" IMAGES_DIR "$state/.images" \
                SUPERVISOR_STATE "$state/supervisor"
            printf 'exec %q "$@"\n' "$state/bin/sandboxctl"
        } >"$state/sandboxctl.new"
    )
    chmod 0700 "$state/sandboxctl.new"
    mv "$state/sandboxctl.new" "$state/sandboxctl"
}

say_how() {
    local shown sudo='' reader=''
    shown=$(printf '%q' "$STATE_DIR")
    [ "$owner" = 0:0 ] || sudo='sudo ' reader=' (for root)'
    cat <<END

  Agent Sandbox serves at   $base_url
  API key (default project) $api_key

  Try it:   . $shown/run.env; curl -H "Authorization: Bearer \$SANDBOX_API_KEY" $base_url/api/me
  Keys:     $sudo$shown/sandboxctl key list
  Logs:     $shown/log/$reader
  Stop:     Ctrl-C

END
}

# --- while it runs -----------------------------------------------------------------------------------------------------

# A log that outgrows its bound loses its older half.
trim_logs() {
    local file
    for file in "$state"/log/*.log; do
        [ "$(stat -c %s "$file" 2>/dev/null || echo 0)" -gt 67108864 ] || continue
        tail -c 33554432 "$file" >"$file.1"
        : >"$file"
        log_start[$(basename "$file" .log)]=0
    done
}

note_logs() {
    local role
    for role in postgres supervisor server; do log_start[$role]=$(stat -c %s "$state/log/$role.log" 2>/dev/null || echo 0); done
}

# One that dies is started again; one that keeps dying is not.
revive() {
    local role=$1
    [ $((SECONDS - ${death_at[$role]:-0})) -lt 60 ] || deaths[$role]=0
    death_at[$role]=$SECONDS
    deaths[$role]=$((${deaths[$role]:-0} + 1))
    [ "${deaths[$role]}" -le 5 ] || give_up "$role died ${deaths[$role]} times within a minute" "$role"
    printf '%s\n' "run: $role ended unexpectedly (status $2) and is started again" >&2
    [ "${deaths[$role]}" -le 1 ] || sleep "${deaths[$role]}"
    "start_$role" || true
}

watch_over() {
    local ended revived status=0 role tick
    sleep 60 7>&- 8>&- & tick=$!
    while [ -z "$stopping" ]; do
        # Asked of each, not taken from wait: the shell forgets one that died while another was being started.
        revived=
        for role in postgres supervisor server; do
            [ -z "${pid_of[$role]:-}" ] || alive "$role" || { revive "$role" "$status"; revived=yes; }
        done
        [ -z "$revived" ] || continue
        ended=
        status=0
        wait -n -p ended || status=$?
        [ -z "$stopping" ] || break
        if [ "$ended" = "$tick" ]; then
            trim_logs
            sleep 60 7>&- 8>&- & tick=$!
        fi
    done
    kill "$tick" 2>/dev/null || true
}

# --- the order -----------------------------------------------------------------------------------------------------------

# A function, so that this file may change while it runs.
main() {
    local image
    trap stop_all EXIT
    trap 'stopping=yes; exit 0' HUP INT TERM

    make_user
    wait_for_previous
    rm -f "$state/run.env"
    make_folders
    take_ids
    make_secrets
    probe_address
    export PORT HOST JWT_EXPIRES_DAYS=${JWT_EXPIRES_DAYS:-90} PUBLIC_BASE_URL=${PUBLIC_BASE_URL:-$base_url}
    export SUPERVISOR_SOCKET=$runtime/supervisor/supervisor.sock
    trim_logs
    note_logs
    choose_disks
    choose_network
    check_settings

    image=${SANDBOX_IMAGE:-base}
    if [ ! -d "$state/.images/$image" ]; then
        check_machine
        [ "$image" = base ] || die "there is no image $image in $state/.images; make it with sandboxctl image build $image"
        # In the background, so that a signal is acted on at once.
        setsid "$here/base-image.sh" "$state/.images" base 7>&- 8>&- &
        pid_of[image]=$!
        wait "${pid_of[image]}" || exit 1
        unset 'pid_of[image]'
    fi
    # With a digest it can be verified, and built upon.
    [ -L "$state/.images/$image" ] || IMAGES_DIR="$state/.images" "$state/bin/sandboxctl" image adopt "$image" >/dev/null ||
        say "the image $image stays a folder without a digest"
    if [ -z "${DATABASE_URL:-}" ]; then
        postgres_bin
        make_cluster
        configure_cluster
        start_postgres
        make_database
    fi
    start_supervisor
    as_server "$inside/bin/sandboxctl" migrate >>"$state/log/server.log" 2>&1 7>&- 8>&- || give_up "the migration failed" server
    start_server
    make_key
    write_ctl
    write_run_env
    begun=yes
    say_how
    watch_over
}

main
