# SQL files -> rows of X-macros, so that the programs carry their SQL.
#
#   mode=queries      QUERY(name, parameters, row, "text"): `row` is the schema that the query's rows fill, or `nothing`
#   mode=migrations   MIGRATION(number, "name", "text")

function refuse(message)
{
    printf "%s:%d: %s\n", FILENAME, FNR, message >"/dev/stderr"
    failed = 1
    exit 1
}

# A line as a C string.
function quoted(line)
{
    gsub(/\\/, "&&", line)
    gsub(/"/, "\\\"", line)
    gsub(/\t/, "\\t", line)
    gsub(/\r/, "", line)
    return "\"" line "\\n\""
}

# The highest $n outside of strings.
function count_parameters(line, n)
{
    gsub(/'[^']*'/, "", line)
    while (match(line, /\$[0-9]+/)) {
        n = substr(line, RSTART + 1, RLENGTH - 1) + 0
        if (n > parameters)
            parameters = n
        line = substr(line, RSTART + RLENGTH)
    }
}

function end_query()
{
    if (name == "")
        return
    if (text == "") {
        printf "%s: the query %s has no text\n", opened, name >"/dev/stderr"
        failed = 1
        exit 1
    }
    printf "QUERY(%s, %d, %s,%s)\n", name, parameters, row, text
    name = text = ""
    parameters = 0
}

function end_migration()
{
    if (number)
        printf "MIGRATION(%d, \"%s\",%s)\n", number, name, text
    number = 0
    name = text = ""
}

function begin_migration(    base, digits)
{
    base = FILENAME
    sub(/^.*\//, "", base)
    if (base !~ /^[0-9][0-9][0-9][0-9]_[a-z][a-z0-9_]*\.sql$/)
        refuse("migrations are named NNNN_name.sql")
    sub(/\.sql$/, "", base)
    digits = substr(base, 1, 4) + 0
    if (digits <= newest)
        refuse("this number was used already")
    newest = number = digits
    name = substr(base, 6)
}

BEGIN {
    if (mode != "queries" && mode != "migrations") {
        print "embed.awk: mode is queries or migrations" >"/dev/stderr"
        failed = 1
        exit 1
    }
}

FNR == 1 && mode == "queries" { end_query() }
FNR == 1 && mode == "migrations" { end_migration(); begin_migration() }

mode == "migrations" {
    text = text "\n    " quoted($0)
    next
}

/^-- name:/ {
    end_query()
    if (NF != 5 || $4 != "returns")
        refuse("expected `-- name: NAME returns SCHEMA` (or `returns nothing`)")
    if ($3 !~ /^[a-z][a-z0-9_]*$/)
        refuse("a query's name has lower-case letters, digits and _")
    if ($5 !~ /^[a-z][a-z0-9_]*$/)
        refuse("a schema's name has lower-case letters, digits and _")
    if ($3 in seen)
        refuse("there is a query " $3 " already, at " seen[$3])
    name = $3
    row = $5
    opened = FILENAME ":" FNR
    seen[name] = opened
    next
}

/^[ \t]*--/ || /^[ \t\r]*$/ { next }

{
    if (name == "")
        refuse("text before the first `-- name:`")
    count_parameters($0)
    text = text "\n    " quoted($0)
}

END {
    if (failed)
        exit 1
    if (mode == "queries")
        end_query()
    else
        end_migration()
}
