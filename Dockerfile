# The service for production. Built and used by docker-compose.yml; DATABASE_URL names the database.

FROM node:22.21.1-bookworm-slim AS build
WORKDIR /app
# npm fetches the official uWebSockets.js by git.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git \
 && rm -rf /var/lib/apt/lists/*
COPY package.json package-lock.json ./
RUN npm ci
COPY . .
RUN node tidemark.mjs --build-only \
 && npm prune --omit=dev \
 && npm install --no-save --omit=dev "uWebSockets.js@github:uNetworking/uWebSockets.js#v20.69.0"

FROM node:22.21.1-bookworm-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 DATA_DIR=/data
WORKDIR /app
COPY --from=build /app/package.json /app/tidemark.mjs ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/sql ./sql
# The database's password comes from a file, for "serve" and for every other command. New volumes take their owner from here.
RUN printf '%s\n' '#!/bin/sh' '[ -z "$PGPASSWORD_FILE" ] || export PGPASSWORD="$(cat "$PGPASSWORD_FILE")"' \
    'exec node /app/tidemark.mjs "$@"' > /usr/local/bin/tidemark \
 && chmod 755 /usr/local/bin/tidemark \
 && mkdir /data \
 && chown node:node /data
USER node
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readyz`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tidemark"]
CMD ["serve"]
