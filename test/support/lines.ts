/** A response of lines, read to its end and held against the description of the API. */
import { checkAnswer } from './described.ts';
import type { TestService } from './service.ts';

export async function postForLines(
  service: Pick<TestService, 'url'>,
  path: string,
  body: unknown,
  headers: Readonly<Record<string, string>>,
): Promise<{ readonly status: number; readonly text: string; readonly headers: Headers }> {
  const response = await fetch(service.url + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  const { status } = response;
  checkAnswer(
    { method: 'POST', path },
    { status, headers: Object.fromEntries(response.headers), body: text },
  );
  return { status, text, headers: response.headers };
}
