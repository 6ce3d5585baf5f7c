#!/usr/bin/env bash
# Fuzz: tests/fuzz/run.sh SECONDS [TARGET...]   without targets all of them, one after the other, each for so many seconds.
#
# O says where they were built. What is new goes to O/corpus/TARGET, what crashes to O/crashes/TARGET. With FUZZ_KEEP=N the smallest
# inputs that reach what was reached, N at most, become tests/fuzz/corpus/TARGET.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
: "${O:=build/fuzz}"
seconds=${1:?how many seconds}
shift
failed=()

targets=("$@")
if [ $# = 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        source=${source##*/fuzz_}
        targets+=("${source%.c}")
    done
fi

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

# The smallest inputs first, while each adds something.
keep() {
    local name=$1 most=$2 merged
    merged=$(mktemp -d)
    "$O/tests/fuzz/fuzz_$name" -merge=1 -max_len=4096 "$merged" "tests/fuzz/corpus/$name" "$O/corpus/$name" >/dev/null 2>&1
    rm -rf "tests/fuzz/corpus/$name"
    mkdir -p "tests/fuzz/corpus/$name"
    find "$merged" -type f -printf '%s %p\n' | sort -n | awk -v most="$most" '
        { path[NR] = $2 } END { step = NR > most ? NR / most : 1; for (i = 1; i <= NR; i += step) print path[int(i)] }' |
        while read -r path; do cp "$path" "tests/fuzz/corpus/$name/"; done
    rm -rf "$merged"
}

for name in "${targets[@]}"; do
    mkdir -p "$O/corpus/$name" "$O/crashes/$name" "tests/fuzz/corpus/$name"
    log=$O/$name.log
    status=0
    nice -n 19 "$O/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$O/crashes/$name/" "$O/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || status=$?
    printf 'fuzz: %-10s %12s executions, coverage %s, %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
        "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2)" "$([ $status = 0 ] && echo "clean" || echo "FAILED: $log")"
    if [ $status = 0 ]; then
        [ -z "${FUZZ_KEEP:-}" ] || keep "$name" "$FUZZ_KEEP"
    else
        failed+=("$name")
        tail -n 30 "$log"
    fi
done
[ ${#failed[@]} = 0 ] || { echo "fuzz: FAILED: ${failed[*]}"; exit 1; }
