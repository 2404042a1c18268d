#!/bin/bash
# Runs once, when the database is made, after the image's own scripts: a role for the service that owns its database and has
# no other right. The superuser "postgres" stays for administration, inside of the container.
set -euo pipefail
psql -X -v ON_ERROR_STOP=1 --no-password --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set password `cat /secrets/database-password`
CREATE ROLE tidemark LOGIN PASSWORD :'password';
ALTER DATABASE tidemark OWNER TO tidemark;
REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC;
SQL
