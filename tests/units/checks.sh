# shellcheck shell=bash disable=SC2016,SC2154 # what is quoted is for shells inside; run.sh sets the variables
# What run.sh looks at, in order: `inside` runs a command beside the systemd, `holds` counts. Sourced by run.sh.

boxes=/sandbox.slice/sandbox-boxes.slice/sandbox-boxes.service
client() { inside python3 /client.py /root/key "$@"; }
exec_in() { [ "$(client exec "$@")" = ok ]; }
property() { inside systemctl show -P "$2" "$1"; }

# Processes of sandboxes: those whose cgroup is beneath the place of the boxes, its own sleep aside.
sandboxed() {
        inside sh -c 'grep -l "'"$boxes"'/" /proc/[0-9]*/cgroup 2>/dev/null | wc -l'
}
sandbox_cgroups() {
    local where
    while read -r where _; do find "$where/$name$boxes" -mindepth 2 -type d 2>/dev/null; done <"$work/hierarchies" | wc -l
}
eventually() {
    local tries
    for tries in {1..100}; do
        ! "$@" || return 0
        sleep "0.$((tries > 10))"
    done
    return 1
}
is() { [ "$("${@:2}")" = "$1" ] || { echo "expected $1, is: $("${@:2}")"; return 1; }; }
at_least() { [ "$("${@:2}")" -ge "$1" ] || { echo "expected $1 or more, is: $("${@:2}")"; return 1; }; }

# The commands of a section of the operator's page.
page() {
    local commands
    commands=$(awk -v heading="## $1" '/^## / { on = $0 == heading } /^```$/ { code = 0 } on && code; /^```sh$/ { code = 1 }' "$top/container/systemd/README.md")
    [ -n "$commands" ] || { echo "container/systemd/README.md tells no commands for '$1'"; return 1; }
    inside bash -euo pipefail -c "cd /; umask 022; $commands"
}

# --- from nothing to a session, as the page tells an operator

holds "systemd is up" inside systemctl is-system-running --wait
holds "PostgreSQL starts" inside systemctl enable -q --now postgresql
holds "Set up" page "Set up"
holds "the secrets are for root alone" is 0600 inside sh -c "stat -c 0%a /etc/credstore/* | sort -u"
holds "Start" page "Start"
holds "both are active" inside systemctl is-active sandbox-supervisor sandbox-server sandbox-boxes sandbox-server.socket
holds "the API answers on the socket that systemd opened" eventually inside curl -sf http://127.0.0.1:8000/api/health
page "A key" >"$work/key" 2>"$work/output"
holds "sandboxctl makes a key" grep -q '^ak_' "$work/key"
inside tee /root/key <"$work/key" >/dev/null
box=$(client open 2>"$work/output")
holds "a session runs" test -n "$box"

# --- where it runs, and what it inherits from the unit

holds "its processes are beneath sandbox-boxes.service" at_least 1 sandboxed
holds "a command runs" exec_in "$box" 'echo kept >/workspace/file; (sleep 4321 >/dev/null 2>&1 &); echo ok'
holds "it is root of 65536 ids" exec_in "$box" '[ $(id -u) = 0 ] && [ "$(awk "{ print \$3 }" /proc/self/uid_map)" = 65536 ] && echo ok'
holds "set-id bits and devices stay as in a sandbox" exec_in "$box" 'cd /tmp && touch f && chmod 4755 f && [ -c /dev/null ] && ! mknod m c 1 1 2>/dev/null && echo ok'
holds "memory may be written and executed, as just-in-time compilers do" \
    exec_in "$box" 'python3 -c "import mmap; mmap.mmap(-1, 4096, prot=7)" 2>/dev/null || ! command -v python3 >/dev/null && echo ok'
holds "an unknown call is ENOSYS" \
    exec_in "$box" 'command -v python3 >/dev/null || { echo ok; exit; }; python3 -c "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(\"ok\" if l.syscall(999) == -1 and ctypes.get_errno() == 38 else ctypes.get_errno())"'
holds "cores of a sandbox have one byte" exec_in "$box" '[ "$(ulimit -Hc)" = 0 ] && grep -q "core file size *1 *1 " /proc/self/limits && echo ok'
holds "the server cannot see the sandboxes' files" \
    inside sh -c '! nsenter -t "$(systemctl show -P MainPID sandbox-server)" -m -S 0 ls /var/lib/agent-sandbox/supervisor/sandboxes'
holds "the server has no capability" inside sh -c 'grep -q "^CapBnd:.0*$" /proc/"$(systemctl show -P MainPID sandbox-server)"/status'
has_five() { inside sh -c 'grep -q "^CapEff:.000000000000003b$" /proc/"$(systemctl show -P MainPID sandbox-supervisor)"/status'; }
holds "the supervisor's loop has five capabilities" has_five
holds "another user cannot reach the supervisor" inside setpriv --reuid 65534 --clear-groups sh -c '! ls /run/agent-sandbox/supervisor'
accepts() {
    inside sh -c 'exec setpriv --reuid "$2" env -i $(systemctl show -P Environment "$1") $(sed "/^#/d" "/etc/agent-sandbox/${1#sandbox-}.env") /usr/sbin/"$1" --check-config' - "$@"
}
holds "the server accepts its settings" accepts sandbox-server sandbox-server
holds "the supervisor accepts its settings" accepts sandbox-supervisor root

# What it says of a machine as the units leave it: nothing that is needed is missing.
holds "the doctor finds nothing missing" inside sh -c 'env $(systemctl show -P Environment sandbox-supervisor) $(sed "/^#/d" /etc/agent-sandbox/supervisor.env) sandboxctl doctor'

holds "sandboxctl finds the supervisor" inside sh -c 'sandboxctl sandbox list | grep -q running'

# --- a network that leads out

holds "Network" page "Network"
holds "the API answers again" eventually inside curl -sf http://127.0.0.1:8000/api/health
holds "the rules are there" inside nft list table inet sandbox
out=$(client open 2>"$work/output")
holds "a session with a network runs" test -n "$out"
holds "it has a way out, and a server for names" \
    exec_in "$out" 'grep -q "eth0.00000000" /proc/net/route && grep -q "^nameserver 10.207.0.1$" /etc/resolv.conf && echo ok'
holds "the loop has the five capabilities still" has_five
client delete "$out"

# --- who restarts, restarts alone

same() { [ "$(client exec "$box" 'pgrep -x sleep >/dev/null 2>&1 || grep -ls 4321 /proc/[0-9]*/cmdline >/dev/null; cat /workspace/file')" = kept ] && at_least 2 sandboxed; }
old=$(property sandbox-supervisor MainPID)
holds "Upgrade" page "Upgrade"
holds "it is another process" test "$old" != "$(property sandbox-supervisor MainPID)"
holds "the sandbox ran on" eventually same
inside systemctl kill -s KILL --kill-who=main sandbox-supervisor
holds "a killed supervisor is started again" eventually is active property sandbox-supervisor ActiveState
holds "by systemd" eventually is 1 property sandbox-supervisor NRestarts
holds "the sandbox ran on after that" eventually same
inside systemctl kill -s KILL --kill-who=main sandbox-boxes
holds "without its process the place of the sandboxes is still there" is active property sandbox-boxes ActiveState
holds "and the sandbox runs on" eventually same
second=$(client open 2>"$work/output")
holds "another one can be started there" exec_in "$second" 'echo ok'
holds "and be removed" client delete "$second"
holds "the server reloads" inside systemctl reload sandbox-server
holds "the session is there after a reload" eventually same

# --- bad settings end in a state that says so, not in a loop

inside sh -c 'mkdir -p /run/systemd/system/sandbox-server.service.d && printf "[Service]\nEnvironment=LOG_LEVEL=loud\nEnvironmentFile=\n" >/run/systemd/system/sandbox-server.service.d/bad.conf && systemctl daemon-reload'
holds "bad settings are refused" inside sh -c '! systemctl restart sandbox-server'
holds "with EX_CONFIG" is 78 property sandbox-server ExecMainStatus
holds "and no restart" is failed property sandbox-server ActiveState
holds "the log names the setting" inside sh -c 'journalctl -q -u sandbox-server | grep -q "sandbox-server: LOG_LEVEL"'
inside sh -c 'rm -r /run/systemd/system/sandbox-server.service.d && systemctl daemon-reload && systemctl reset-failed sandbox-server'
holds "good ones start it" inside systemctl start sandbox-server

# --- down and up again, as for a reboot

holds "a stop of everything succeeds" inside systemctl stop sandbox-server.socket sandbox-server sandbox-supervisor.socket sandbox-supervisor sandbox-boxes
holds "no process of a sandbox is left" eventually is 0 sandboxed
holds "none of ours is" is 0 inside sh -c 'ps -eo comm= | grep -c "^sandbox-"'
holds "no mount is left" is 0 inside sh -c 'grep -c "agent-sandbox/supervisor" /proc/1/mounts'
holds "the sockets are gone" inside sh -c '! ls /run/agent-sandbox/supervisor/* && ! curl -s http://127.0.0.1:8000/'
holds "the units have not failed" is 0 inside sh -c 'systemctl --no-legend --failed | wc -l'
inside rm -rf /run/agent-sandbox
holds "tmpfiles make the folder of the socket again" inside systemd-tmpfiles --create
holds "all start again" inside systemctl start sandbox-server.socket sandbox-supervisor.socket sandbox-server
holds "no cgroup of a sandbox was left" is 0 sandboxed
holds "the session is stopped" eventually is stopped client status "$box"
holds "it starts" client start "$box"
holds "its workspace was kept" exec_in "$box" '[ "$(cat /workspace/file)" = kept ] && echo ok'

# --- the power goes, and comes back to a machine with cgroups of version 2 alone

holds "a command writes" exec_in "$box" 'echo late >/workspace/late; (sleep 4322 >/dev/null 2>&1 &); echo ok'
power_off
boot unified
holds "systemd is up again" inside systemctl is-system-running --wait
holds "all came up by themselves" eventually inside systemctl -q is-active sandbox-supervisor.socket sandbox-server.socket sandbox-supervisor sandbox-server sandbox-boxes
holds "the API answers again" eventually inside curl -sf http://127.0.0.1:8000/api/health
holds "no sandbox runs" is 0 sandboxed
holds "the session is known as stopped" eventually is stopped client status "$box"
holds "it starts after the power went" client start "$box"
holds "its workspace survived that" exec_in "$box" '[ "$(cat /workspace/file /workspace/late)" = "kept
late" ] && echo ok'
holds "it runs beneath sandbox-boxes.service here, too" at_least 1 sandboxed
holds "the supervisor restarts here, too" inside systemctl restart sandbox-supervisor
holds "and its sandbox runs on" exec_in "$box" 'echo ok'

# --- what was kept elsewhere comes back, whole

holds "a command fills the workspace" exec_in "$box" 'cd /workspace && echo text >"odd
name" && ln -s file link && chown 5:6 file && chmod 4711 file && echo ok'
holds "Back up" page "Back up"
inside sh -c 'cd /var/lib/agent-sandbox/supervisor/sandboxes && rm -rf *; runuser -u sandbox-server -- psql -qX sandbox -c "DROP SCHEMA public CASCADE"' 2>/dev/null
holds "Restore" page "Restore"
holds "the session is there again" eventually is stopped client status "$box"
holds "it starts from what was restored" client start "$box"
holds "the workspace was restored as it was" \
    exec_in "$box" 'cd /workspace && [ "$(stat -c %a:%u:%g file)" = 4711:5:6 ] && [ "$(readlink link)" = file ] && [ "$(cat odd*name)" = text ] && echo ok'

# --- and at the end nothing

holds "a session can be deleted" client delete "$box"
# But for what is kept ready for the next (WARM_POOL).
holds "only the pool's processes are left" eventually is 2 sandboxed
holds "its folder is gone" is 0 inside sh -c 'ls /var/lib/agent-sandbox/supervisor/sandboxes | grep -c "^$1"' - "$box"
holds "Remove" page "Remove"
holds "and no process of a sandbox" eventually is 0 sandboxed
holds "and no cgroup" eventually is 0 sandbox_cgroups
holds "none of it runs" is 0 inside sh -c 'ps -eo comm= | grep -c "^sandbox-"'
holds "nothing of it starts at the next boot" is 0 inside sh -c 'find /etc/systemd/system -name "sandbox-*" ! -name "*.d" | wc -l'
