/** Requests to the server: typed answers, failures as one kind of error that can be shown and retried. */

/** A request that did not succeed: refused, failed, or never answered. */
export class Problem extends Error {
  /** HTTP status; 0 where there was no answer. */
  readonly status: number;
  /** The server's code, or UNREACHABLE. */
  readonly code: string;
  readonly details: string;
  /** What to look for in the server's log; null where there was no answer. */
  readonly requestId: string | null;
  readonly retryAfterSeconds: number | null;
  /** The declaration of fields that would answer, as options of `tidemark field add`; null: none would, or it is not known. */
  readonly declare: string | null;

  constructor(error: string, fields: Partial<Omit<Problem, keyof Error>> = {}) {
    super(error);
    this.status = fields.status ?? 0;
    this.code = fields.code ?? 'UNREACHABLE';
    this.details = fields.details ?? '';
    this.requestId = fields.requestId ?? null;
    this.retryAfterSeconds = fields.retryAfterSeconds ?? null;
    this.declare = fields.declare ?? null;
  }
}

/** What was thrown, as a problem. */
export const asProblem = (error: unknown, message = 'Something went wrong'): Problem =>
  error instanceof Problem ? error : new Problem(message, { details: String(error) });

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

export interface CallOptions {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Longer than REQUEST_TIMEOUT_SECONDS by default, so that the server answers first. */
const TIMEOUT_MS = 40_000;

let onSignedOut: () => Promise<boolean> = async () => false;

/** Sets the handler of a 401: the session has ended. It says whether there is a new one, so that the request is repeated. */
export function whenSignedOut(listener: () => Promise<boolean>): void {
  onSignedOut = listener;
}

/**
 * Sends a request and gives back the answer's text.
 * @throws Problem; or what the caller's signal was aborted with
 */
export async function callText(method: Method, path: string, options: CallOptions = {}): Promise<string> {
  const { body, headers, signal } = options;
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, {
      method,
      credentials: 'same-origin',
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      ...(headers && { headers }),
      // State-changing requests need the JSON content type even without a body.
      ...(method !== 'GET' && {
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body ?? {}),
      }),
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(
      timeout.aborted ? 'The server did not answer in time' : 'The server cannot be reached',
      {
        details: 'Check that it runs and that this computer is connected, then try again.',
      },
    );
  }
  if (response.ok) return text;
  const problem = problemOf(response, text);
  if (problem.code !== 'SESSION_REQUIRED' || !(await onSignedOut())) throw problem;
  signal?.throwIfAborted();
  return await callText(method, path, options);
}

/** Sends a request and gives back the answer's `data`. @throws Problem */
export async function call<T>(method: Method, path: string, options: CallOptions = {}): Promise<T> {
  const text = await callText(method, path, options);
  try {
    // The server's handler satisfies the shape; nothing checks it here.
    return (JSON.parse(text) as { readonly data: T }).data;
  } catch {
    throw new Problem('The answer could not be read', {
      details: 'It does not have the expected format.',
      code: 'BAD_ANSWER',
    });
  }
}

/**
 * Sends a request whose answer comes line by line, each one a JSON text.
 * @throws Problem; or what the signal was aborted with
 */
export async function callLines<T>(
  path: string,
  body: unknown,
  signal: AbortSignal,
  onLine: (line: T) => void,
): Promise<void> {
  const headers = { 'Content-Type': 'application/json' };
  const response = await fetch(path, { method: 'POST', signal, headers, body: JSON.stringify(body) });
  if (!response.ok || response.body === null) throw problemOf(response, await response.text());
  let text = '';
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (text + part.value).split('\n');
    text = lines.pop() ?? '';
    // The server's handler satisfies the shape; nothing checks it here.
    for (const line of lines) if (line !== '') onLine(JSON.parse(line) as T);
  }
}

function problemOf(response: Response, text: string): Problem {
  const fields = {
    status: response.status,
    requestId: response.headers.get('X-Request-Id'),
    retryAfterSeconds: Number(response.headers.get('Retry-After')) || null,
  };
  try {
    const { error, details, code, declare } = JSON.parse(text) as Record<
      'error' | 'details' | 'code',
      string
    > & {
      readonly declare?: string;
    };
    return new Problem(error, { ...fields, details, code, declare: declare ?? null });
  } catch {
    // A proxy may answer in a format of its own.
    return new Problem('The server failed to answer', {
      ...fields,
      code: 'BAD_ANSWER',
      details: `Status ${response.status}.`,
    });
  }
}
