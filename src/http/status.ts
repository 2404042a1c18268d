import { STATUS_CODES } from 'node:http';

const LINES = new Map(Object.entries(STATUS_CODES).map(([code, text]) => [Number(code), `${code} ${text}`]));

/** A status code with its reason phrase, such as `201 Created`. */
export function statusLine(status: number): string {
  return LINES.get(status) ?? String(status);
}
