#!/usr/bin/env bash
# Look at the code without running it: lint.sh quick|all
#
#   quick   rooms, the supervisor's libraries, shell, spelling, headers that stand alone, units, manual pages: seconds
#   all     and clang-tidy, cppcheck, the layout
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
: "${O:=build/release}"
failed=()
sources=$(git ls-files 'common/*.[ch]' 'server/*.[ch]' 'supervisor/*.[ch]' 'tests/*.[ch]')
programs=$(grep -E '^(common|server|supervisor)/.*\.c$' <<<"$sources")
flags=(-std=gnu17 -D_GNU_SOURCE -I. -Iserver "-I$O" -I/usr/include/postgresql)

try() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "lint: $name: fine"
    else
        printf '%s\n' "$output" | grep -E 'error:|warning:|: [a-zA-Z]+: ' | head -n 40 || printf '%s\n' "$output" | tail -n 40
        echo "lint: $name: FAILED"
        failed+=("$name")
    fi
}

# shellcheck disable=SC2046 # lists of files of ours, without blanks
rooms() { awk -f tests/lint/rooms.awk $(grep -E '^(common|server|supervisor)/' <<<"$sources"); }

# A privileged program links little.
libraries() {
    local needed
    [ -x "$O/sandbox-supervisor" ] || { echo "$O/sandbox-supervisor is not built"; return 1; }
    needed=$(readelf -d "$O/sandbox-supervisor" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libseccomp|libcap|libc|ld-linux-x86-64|lib(a|t|ub)san)\.so' || true)
    [ -z "$needed" ] || { echo "the supervisor links $needed"; return 1; }
    readelf -lW "$O/sandbox-init" | grep -q INTERP && { echo "sandbox-init is not static"; return 1; }
    return 0
}

shell() { git ls-files '*.sh' .ci/run | xargs shellcheck; }

# The letter of an escape is none of the word behind it.
spelling() {
    git ls-files | grep -vE '\.(png|svg)$|^tests/fuzz/corpus/' | xargs codespell --ignore-words=tests/lint/words.txt --ignore-regex='\\[abefnrtv]'
}

# A header includes what its declarations need.
headers() {
    local header bad=0
    while read -r header; do
        printf '#include "%s"\n' "$header" | gcc "${flags[@]}" -fsyntax-only -x c - || bad=1
    done < <(grep -E '^(common|server|supervisor)/.*\.h$' <<<"$sources")
    return $bad
}

layout() {
    # shellcheck disable=SC2086
    clang-format --dry-run --Werror $sources
}

bugs() {
    # shellcheck disable=SC2086
    printf '%s\n' $programs | xargs -P "$(nproc)" -I{} clang-tidy --quiet {} -- "${flags[@]}" 2>/dev/null
}

# It does not know that a scope cleans up, nor that a child of fork() does not come back.
more_bugs() {
    # shellcheck disable=SC2086
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j "$(nproc)" \
        --suppress=resourceLeak --suppress=doubleFree --suppress=deallocuse --suppress=deallocret --suppress=autoVariables \
        --suppress=unusedStructMember --suppress=missingInclude --suppress=unknownMacro --suppress=internalAstError \
        -D_GNU_SOURCE -I. -Iserver "-I$O" --template='{file}:{line}: {id}: {message}' $programs
}

# The systemd units fit the programs, and expose no more than they must.
units() { python3 tests/lint/units.py "$O" && python3 tests/lint/units.py --prove "$O"; }

# The manual pages say what the programs say, and are laid out well.
manual() {
    # shellcheck disable=SC2046
    { ! command -v mandoc >/dev/null || mandoc -T lint -W warning $(git ls-files '*.8'); } && python3 tests/lint/manual.py "$O"
}

try rooms rooms
try libraries libraries
try shell shell
try spelling spelling
try headers headers
try units units
try manual manual
if [ "${1:-quick}" = all ]; then
    try cppcheck more_bugs
    try clang-tidy bugs
    # Reported only: tables are aligned by hand.
    layout >/dev/null 2>&1 || echo "lint: layout: make format would change $(layout 2>&1 | grep -c 'error:') places"
fi
[ ${#failed[@]} = 0 ] || { echo "lint: FAILED: ${failed[*]}"; exit 1; }
