/** A JSON object, as `JSON.stringify` takes it. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A refusal of the service. */
export class TidemarkError extends Error {
  override readonly name = 'TidemarkError';
  /** The HTTP status; 0 if the service refused one event of a batch. */
  readonly status: number;
  /** The machine-readable code, such as `INVALID_REQUEST`; empty if the response was not one of Tidemark. */
  readonly code: string;

  constructor(status: number, code: string, details: string) {
    super(details);
    this.status = status;
    this.code = code;
  }
}

/** The error that a response's body describes. */
export function errorOf(status: number, body: unknown): TidemarkError {
  const fields = typeof body === 'object' && body !== null ? (body as JsonObject) : {};
  const code = typeof fields.code === 'string' ? fields.code : '';
  const details = typeof fields.details === 'string' ? fields.details : `The response has status ${status}.`;
  return new TidemarkError(status, code, details);
}
