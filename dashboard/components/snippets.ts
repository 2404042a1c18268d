/** Programs that send and read events, ready to be pasted: with the app's own tokens and this server's address. */

export interface SnippetPlace {
  /** Origin of the server. */
  readonly base: string;
  readonly appId: string;
  /** Null: not shown; a placeholder stands for it. */
  readonly loggingToken: string | null;
  readonly resourceToken: string | null;
}

/** A text of snippets.txt. */
export interface Snippet {
  /** What it is for: `send`, `read` or `producers`. */
  readonly group: string;
  readonly name: string;
  readonly language: string;
  /** With `{{…}}` for what depends on the place. */
  readonly template: string;
}

export function parseSnippets(file: string): Snippet[] {
  const [, ...parts] = file.split(/^=== /m);
  return parts.map((part) => {
    const [head = '', ...lines] = part.trimEnd().split('\n');
    const [group = '', name = '', language = ''] = head.split(' | ');
    return { group, name, language, template: lines.join('\n') };
  });
}

/** The text of a template for a place. */
export function fillIn(template: string, { base, appId, loggingToken, resourceToken }: SnippetPlace): string {
  const { protocol, hostname, port } = new URL(base);
  const isSecure = protocol === 'https:';
  const ownPort = port || (isSecure ? '443' : '80');
  const values: Readonly<Record<string, string>> = {
    base,
    appId,
    origin: `${protocol}//${hostname}:${ownPort}`,
    host: hostname,
    port: ownPort,
    tls: isSecure ? 'on' : 'off',
    token: loggingToken ?? 'YOUR_LOGGING_TOKEN',
    readToken: resourceToken ?? 'YOUR_RESOURCE_TOKEN',
  };
  return template.replace(/\{\{(\w+)\}\}/g, (whole, name: string) => values[name] ?? whole);
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
