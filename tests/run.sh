#!/usr/bin/env bash
# Run tests that were built: tests/run.sh STAGE...   with stages unit, replay, sandbox, soak, units, api, lint, memcheck, bench.
#
# O says where they were built. A stage `api` or `bench` that stands alone hands the words behind it to its program.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(dirname "$here")
cd "$top" || exit 2
: "${O:=build/release}"
export O
failed=()

case ${BUILD:-${O##*/}} in
asan*)
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:abort_on_error=0:exitcode=99
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99
    export LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0
    ;;
tsan*)
    # A test's forked child may start a thread of its own, which the sanitizer takes for a reason to die. The programs fork before threads.
    export TSAN_OPTIONS=suppressions=$here/tsan.supp:halt_on_error=0:exitcode=99:second_deadlock_stack=1:die_after_fork=0
    ;;
esac

# A folder of Python packages, made anew when the requirements change.
venv() {
    local python=/usr/bin/python3 folder=build/venv want
    [ -x "$python" ] || python=python3
    want=$({ cat "$here/api/requirements.txt"; "$python" --version; } | sha256sum)
    if [ "$(cat "$folder/made-from" 2>/dev/null)" != "$want" ]; then
        echo "tests: making $folder"
        rm -rf "$folder"
        "$python" -m venv "$folder" && "$folder/bin/pip" -q install -r "$here/api/requirements.txt" || return 1
        printf '%s\n' "$want" >"$folder/made-from"
    fi
}

# Run Check programs one by one, and add their sums up.
check_programs() {
    local stage=$1 program output status line checks=0 bad=0 programs=0 skipped=0 begin=$SECONDS
    shift
    for program in "$@"; do
        programs=$((programs + 1))
        status=0
        # shellcheck disable=SC2086 # the words of WRAPPER
        output=$(timeout -k 10 "${TEST_SECONDS:-300}" ${WRAPPER:-} "$program" 2>&1) || status=$?
        line=$(grep -E '^[0-9]+%: Checks: ' <<<"$output" | tail -n 1)
        printf '%-44s %s\n' "${program#"$O"/tests/}" "${line:-no summary (status $status)}"
        if [[ $line =~ Checks:\ ([0-9]+),\ Failures:\ ([0-9]+),\ Errors:\ ([0-9]+) ]]; then
            checks=$((checks + BASH_REMATCH[1]))
            bad=$((bad + BASH_REMATCH[2] + BASH_REMATCH[3]))
            [ "$status" = 0 ] || [ $((BASH_REMATCH[2] + BASH_REMATCH[3])) -gt 0 ] || bad=$((bad + 1)) # it broke at its end: a leak, say
        elif [ "$status" = 77 ]; then
            skipped=$((skipped + 1)) # it can't run here, and says why
        else
            bad=$((bad + 1))
        fi
        grep -E 'skip(s|ped)' <<<"$output" | head -n 20
        [ "$status" = 0 ] || [ "$status" = 77 ] || printf '%s\n' "$output" | tail -n 100
    done
    printf '%s: %d programs (%d skipped) in %d s\n%s: %d passed, %d failed\n' "$stage" "$programs" "$skipped" $((SECONDS - begin)) "$stage" $((checks - bad > 0 ? checks - bad : 0)) "$bad"
    [ "$programs" -gt 0 ] && [ "$bad" = 0 ]
}

built() {
    local source
    # shellcheck disable=SC2231 # a pattern
    for source in tests/$1/test_*.c; do
        [ ! -e "$source" ] || printf '%s\n' "$O/${source%.c}"
    done
}

stage_unit() {
    # shellcheck disable=SC2046 # names of ours, without blanks
    check_programs unit $(built 'unit/*')
}

# Fuzz targets on their corpora: what was found once must not come back.
stage_replay() {
    local program name output passed=0 bad=0
    for program in "$O"/tests/fuzz/fuzz_*; do
        [[ -x $program && $program != *.* ]] || continue
        name=${program##*/fuzz_}
        if output=$(timeout -k 10 120 "$program" "tests/fuzz/corpus/$name" 2>&1); then
            passed=$((passed + 1))
        else
            bad=$((bad + 1))
            printf 'replay: %s failed\n%s\n' "$name" "$(tail -n 40 <<<"$output")"
        fi
    done
    echo "replay: $passed passed, $bad failed"
    [ "$passed" -gt 0 ] && [ "$bad" = 0 ]
}

stage_sandbox() {
    local programs
    programs=$(built sandbox)
    [ -n "$programs" ] || { echo "sandbox: no tests"; return 1; }
    if [ "$(id -u)" != 0 ]; then
        echo "sandbox: skipped, since only root can make sandboxes (run make check as root)"
        return
    fi
    container/base-image.sh build/images base || return 1
    export SANDBOX_TEST_IMAGE=$top/build/images/base
    # shellcheck disable=SC2086
    check_programs sandbox $programs
}

stage_soak() {
    [ "$(id -u)" = 0 ] || { echo "soak: only root can make sandboxes"; return 1; }
    container/base-image.sh build/images base || return 1
    SANDBOX_TEST_IMAGE=$top/build/images/base check_programs soak "$O/tests/sandbox/test_soak"
}

# The systemd units, under a systemd in namespaces. Where none can be had, the reason is printed and counts as one that was skipped.
stage_units() {
    local status=0 begin=$SECONDS
    if [ "$(id -u)" = 0 ]; then
        container/base-image.sh build/images base || return 1
    fi
    timeout -k 10 120 tests/units/run.sh "$O" build/images/base || status=$?
    [ "$status" != 77 ] || { echo "units: 0 passed, 0 failed (1 skipped)"; status=0; }
    echo "units: in $((SECONDS - begin)) s"
    return "$status"
}

stage_api() {
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        echo "api: skipped, since only root can start the supervisor (run make check as root)"
        return
    fi
    venv || return 1
    build/venv/bin/python -m pytest -c tests/api/pytest.ini --rootdir tests/api tests/api "$@"
}

stage_lint() { tests/lint/lint.sh quick; }

stage_memcheck() {
    # shellcheck disable=SC2046
    CK_FORK=no TEST_SECONDS=900 WRAPPER="valgrind -q --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=99 --suppressions=$here/valgrind.supp" \
        check_programs memcheck $(built 'unit/*')
}

stage_bench() {
    venv || return 1
    build/venv/bin/python tests/load/bench.py "$@"
}

[ $# -gt 0 ] || { echo "usage: tests/run.sh STAGE..." >&2; exit 2; }
case $1 in
api | bench) stages=("$1"); shift; arguments=("$@") ;;
*) stages=("$@"); arguments=() ;;
esac
for stage in "${stages[@]}"; do
    printf '\n--- %s\n' "$stage"
    "stage_$stage" "${arguments[@]}" || failed+=("$stage")
done
[ ${#stages[@]} = 1 ] || printf '\n'
[ ${#failed[@]} = 0 ] || { echo "FAILED: ${failed[*]}"; exit 1; }
[ ${#stages[@]} = 1 ] || echo "all passed: ${stages[*]}"
