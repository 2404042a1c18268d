/** Programs that send and read events, ready to be pasted: with the app's own tokens and this server's address. */

export interface SnippetPlace {
  /** Origin of the server. */
  readonly base: string;
  readonly appId: string;
  /** Null: not to be shown here; the program takes it from its environment. */
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
      text: `const response = await fetch('${base}/public/create_event', {
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify({
    loggingToken: '${token}',
    typeName: 'hello',
    payload: { from: 'node' },
  }),
});
console.log(response.status, await response.json());`,
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
      text: `const query = new URLSearchParams({ limit: '1000' });
for (;;) {
  const response = await fetch('${base}/v1/apps/${appId}/events?' + query, {
    headers: { Authorization: 'Bearer ${token}' },
  });
  const { data } = await response.json();
  for (const event of data.events) console.log(event.createdAt, event.payload);
  if (!data.pagination.nextCursor) break;
  query.set('cursor', data.pagination.nextCursor);
}`,
    },
    {
      name: 'Export',
      text: `# Every event as a line of JSON, as one stream; format=csv for a table.
curl '${base}/v1/apps/${appId}/export?format=ndjson' \\
  -H 'Authorization: Bearer ${token}' --compressed -o events.ndjson`,
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
