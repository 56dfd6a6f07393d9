#!/bin/sh
# stream.sh - a long-lived handler in shell, several messages at once
#
#     mqworker --stream --window 4 /numbers -- ./stream.sh
#
# Each message is a list of whole numbers. Their sum is added to the file $SUMS
# as a line "ID SUM". A body with NUL bytes is more than a shell can hold.
sums=${SUMS:-sums}

# One echo is one write, so answers and sums of several at once do not mix.
handle() {
    total=0
    for word in $2; do
        case ${word#-} in
        '' | *[!0-9]* | 0?*)
            echo "DEAD $1 $word is no number"
            return
            ;;
        esac
        total=$((total + word))
    done
    if echo "$1 $total" >>"$sums"; then
        echo "OK $1"
    else
        echo "RETRY $1 delay=200ms cannot write $sums"
    fi
}

set -f # a body is no pattern
while read -r _ id bytes fields; do
    body=
    [ "$bytes" -eq 0 ] || body=$(head -c "$bytes")
    read -r _ # the newline behind the body
    case " $fields " in
    *" redelivered=1 "*) echo "$id may have run before" >&2 ;;
    esac
    # Nothing but this loop may read from our input.
    handle "$id" "$body" </dev/null &
done
wait
