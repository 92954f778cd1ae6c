#!/bin/sh
# One job: sell one piece. Reads the last line of the log, takes a moment, and appends the new count with the
# token of its lock, in one write. Two of these at once lose an update.
log=$1
read -r count _ <<LINE
$(tail -n 1 "$log")
LINE
sleep "0.0$(($$ % 3))$(($(date +%N | cut -c7) % 10))"
printf '%s %s\n' "$((count - 1))" "${FENCEPOST_TOKEN:-none}" >>"$log"
