# The arrows between rooms: awk -f rooms.awk FILE...   A file includes only its own room and the ones to the left of it.
#
#   common ◄ store ◄ http, run ◄ api ◄ main        common ◄ supervisor

BEGIN {
    may["common"] = "common"
    may["store"] = "common store settings"
    may["http"] = "common store settings http"
    may["run"] = "common store settings run"
    may["api"] = "common store settings http run api"
    may["main"] = "common store settings http run api main"
    may["ctl"] = "common store settings run ctl"
    may["supervisor"] = "common supervisor"
    # Headers that lie beside main.c and belong to everybody to its left: what the program is set to, and what it counts.
    shared["settings.h"] = shared["settings.def"] = shared["metrics.h"] = shared["metrics.def"] = 1
}

function room_of(path) {
    if (path ~ /^common\//) return "common"
    if (path ~ /^supervisor\//) return "supervisor"
    if (path ~ /^server\/((sandboxctl|doctor)\.|images\/)/) return "ctl"
    if (path ~ /^server\/(store|http|run|api)\//) { sub(/^server\//, "", path); sub(/\/.*/, "", path); return path }
    if (path ~ /^server\//) return "main"
    return ""
}

# The room of what is included, as the include paths `.` and `server` find it; "" for a generated or a neighbour's file.
function target_of(name) {
    if (name ~ /^(common|supervisor)\//) return room_of(name)
    sub(/^server\//, "", name)
    if (name ~ /^(store|http|run|api)\//) return room_of("server/" name)
    if (name in shared) return "settings"
    if (name ~ /^((sandboxctl|doctor)\.|images\/)/) return "ctl"
    if (name ~ /^(main|master|listener|worker|streamer|role|routes)\./) return "main"
    return ""
}

/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    from = room_of(FILENAME)
    to = target_of(part[2])
    # routes.def declares the handlers, and the api room reads it.
    if (part[2] ~ /routes\.def$/ && from == "api") next
    if (from != "" && to != "" && index(" " may[from] " ", " " to " ") == 0) {
        printf "%s:%d: the room %s must not include \"%s\"\n", FILENAME, FNR, from, part[2]
        bad = 1
    }
    if (from == "supervisor" && part[2] ~ /^common\/json/) {
        printf "%s:%d: the supervisor parses no JSON\n", FILENAME, FNR
        bad = 1
    }
}

END { exit bad }
