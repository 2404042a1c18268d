#!/bin/sh
# Backs up the installation, restores the backup into an empty database beside it as a test, and removes the oldest files.
# Settings come from the environment, as those of the service do. The exit code is not 0 where any step fails; older
# backups are removed only after the new one has passed its test.
#
# Usage: tidemark-backup.sh FOLDER [NUMBER OF BACKUPS TO KEEP, 14 by default]
set -eu

folder=${1:?name the folder of the backups}
keep=${2:-14}
case $keep in '' | *[!0-9]* | 0) echo "keep a number of backups from 1 on, not \"$keep\"" >&2; exit 1 ;; esac
file=$folder/tidemark-$(date -u +%Y%m%dT%H%M%SZ).backup
# The number of events in the answer of a command.
events() { printf '%s' "$1" | sed 's/.*"events":\([0-9]*\).*/\1/'; }

answer=$(tidemark backup "$file" --json)
stored=$(events "$answer")

# The test needs the room of the database. It is an embedded database of its own, whatever the service uses.
trial=$(mktemp -d "$folder/.restore-test-XXXXXX")
trap 'rm -rf "$trial"' EXIT
trap 'exit 1' HUP INT TERM
answer=$(DATABASE_URL='' DATA_DIR="$trial/data" tidemark restore "$file" --json)
restored=$(events "$answer")
if [ "$stored" != "$restored" ]; then
  echo "the backup $file has $stored events, and its restore $restored" >&2
  exit 1
fi
echo "backup tested: $file, $stored events"

# The names sort by time.
find "$folder" -maxdepth 1 -type f -name 'tidemark-*.backup' | sort -r | tail -n "+$((keep + 1))" | while IFS= read -r old; do
  rm -- "$old"
  echo "removed: $old"
done
