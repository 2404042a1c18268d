/** Programs that send and read events, ready to be pasted: with the app's own tokens and this server's address. */

export interface SnippetPlace {
  /** Origin of the server. */
  readonly base: string;
  readonly appId: string;
  /** Null: not shown; the program reads it from its environment. */
  readonly loggingToken: string | null;
  readonly resourceToken: string | null;
}

export interface Snippet {
  readonly name: string;
  readonly text: string;
}

/** Placeholders for what is not known. */
const LOGGING_TOKEN = 'YOUR_LOGGING_TOKEN';
const RESOURCE_TOKEN = 'YOUR_RESOURCE_TOKEN';

export function sending({ base, loggingToken }: SnippetPlace): Snippet[] {
  const token = loggingToken ?? LOGGING_TOKEN;
  return [
    {
      name: 'curl',
      text: `curl ${base}/public/create_event \\
  -H 'Content-Type: application/json' \\
  -d '{
    "loggingToken": "${token}",
    "typeName": "hello",
    "payload": {"from": "curl"}
  }'`,
    },
    {
      name: 'Node',
      text: `// npm install tidemark-client
import { EventLogger } from 'tidemark-client';

const logger = new EventLogger({
  url: '${base}',
  loggingToken: '${token}',
});
logger.log('hello', { from: 'node' });

// Events are sent in the background. Before the process ends:
const lost = await logger.close();
console.log(lost === 0);`,
    },
    {
      name: 'Python',
      text: `import json, urllib.request

request = urllib.request.Request(
    "${base}/public/create_event",
    data=json.dumps({
        "loggingToken": "${token}",
        "typeName": "hello",
        "payload": {"from": "python"},
    }).encode(),
    headers={"Content-Type": "application/json"},
)
print(urllib.request.urlopen(request).read().decode())`,
    },
    {
      name: 'Batch',
      text: `# Up to 10,000 events, one a line. It counts as one request.
curl ${base}/v1/events \\
  -H 'Authorization: Bearer ${token}' \\
  -H 'Content-Type: application/x-ndjson' \\
  --data-binary '{"typeName": "hello", "payload": {"n": 1}}
{"typeName": "hello", "payload": {"n": 2}}'`,
    },
  ];
}

export function reading({ base, appId, resourceToken }: SnippetPlace): Snippet[] {
  const token = resourceToken ?? RESOURCE_TOKEN;
  return [
    {
      name: 'Read: curl',
      text: `curl '${base}/public/get_events?appId=${appId}&limit=100' \\
  -H 'Authorization: Bearer ${token}'`,
    },
    {
      name: 'Read: Node',
      text: `// npm install tidemark-client
import { EventReader } from 'tidemark-client';

const reader = new EventReader({
  url: '${base}',
  resourceToken: '${token}',
});
for await (const event of reader.events('${appId}'))
  console.log(event.createdAt, event.payload);`,
    },
    {
      name: 'Export',
      text: `# Every event as a line of JSON, as one stream; format=csv for a table.
curl '${base}/v1/apps/${appId}/export?format=ndjson' \\
  -H 'Authorization: Bearer ${token}' --compressed -o events.ndjson`,
    },
  ];
}

/** Configurations of log shippers. docs/producers.md explains the same ones in detail. */
export function producers({ base, loggingToken }: SnippetPlace): Snippet[] {
  const token = loggingToken ?? LOGGING_TOKEN;
  const { protocol, hostname, port } = new URL(base);
  const isSecure = protocol === 'https:';
  const ownPort = port === '' ? (isSecure ? '443' : '80') : port;
  return [
    {
      name: 'Vector',
      text: `transforms:
  events:
    type: remap
    inputs: [app_logs]
    source: |
      payload = .
      . = {}
      .typeName = "log line"
      .createdAt = format_timestamp!(payload.timestamp, format: "%Y-%m-%dT%H:%M:%S%.3fZ")
      .key = uuid_v4()
      .payload = payload
sinks:
  tidemark:
    type: http
    inputs: [events]
    uri: ${base}/v1/events
    method: post
    auth: { strategy: bearer, token: "${token}" }
    encoding: { codec: json }
    framing: { method: newline_delimited }
    request: { headers: { Content-Type: application/x-ndjson } }
    compression: gzip
    batch: { max_events: 1000, timeout_secs: 1 }
    buffer: { type: disk, max_size: 268435488 }`,
    },
    {
      name: 'Fluent Bit',
      text: `pipeline:
  filters:
    - name: lua
      match: app.*
      call: event
      code: |
        local started, number = os.time(), 0
        math.randomseed(started)
        local run = started .. "-" .. math.random(1000000000)
        function event(tag, timestamp, record)
          number = number + 1
          return 1, timestamp, {typeName = tag, key = run .. "-" .. number, payload = record}
        end
  outputs:
    - name: http
      match: app.*
      host: ${hostname}
      port: ${ownPort}
      tls: ${isSecure ? 'on' : 'off'}
      uri: /v1/events
      header: Authorization Bearer ${token}
      format: json_lines
      json_date_key: createdAt
      json_date_format: iso8601
      compress: gzip
      retry_limit: 20`,
    },
    {
      name: 'OpenTelemetry',
      text: `# OpenTelemetry Collector
exporters:
  otlphttp:
    endpoint: ${base}/v1/otlp
    headers: { Authorization: "Bearer ${token}" }`,
    },
    {
      name: 'Filebeat',
      text: `# Filebeat
output.elasticsearch:
  hosts: ["${protocol}//${hostname}:${ownPort}/v1/elasticsearch"]
  username: tidemark
  password: "${token}"
setup.ilm.enabled: false
setup.template.enabled: false`,
    },
    {
      name: 'Annotation',
      text: `# A deployment on the charts of the app, from the pipeline that makes it.
curl ${base}/v1/annotations \\
  -H 'Authorization: Bearer ${token}' \\
  -d '{"kind": "deployment", "text": "Release 1.0"}'`,
    },
  ];
}

/** Text as one word of a POSIX shell. */
export function shellQuote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * The command that sends an event like this one again. The payload keeps its spelling; the token stays out of what is
 * pasted around and comes from the environment.
 */
export function eventAsCurl(base: string, typeId: string, payload: string): string {
  const [head, tail] = ['{"loggingToken":"', `","typeId":${JSON.stringify(typeId)},"payload":${payload}}`];
  return `curl ${base}/public/create_event -H 'Content-Type: application/json' -d ${shellQuote(head)}"$LOGGING_TOKEN"${shellQuote(tail)}`;
}
