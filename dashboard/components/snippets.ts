/** Programs that send one event, ready to be pasted: with the app's own token and this server's address. */

export interface Snippet {
  readonly name: string;
  readonly text: string;
}

export function snippets(base: string, loggingToken: string): Snippet[] {
  return [
    {
      name: 'curl',
      text: `curl ${base}/public/create_event \\
  -H 'Content-Type: application/json' \\
  -d '{
    "loggingToken": "${loggingToken}",
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
    loggingToken: '${loggingToken}',
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
        "loggingToken": "${loggingToken}",
        "typeName": "hello",
        "payload": {"from": "python"},
    }).encode(),
    headers={"Content-Type": "application/json"},
)
print(urllib.request.urlopen(request).read().decode())`,
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
