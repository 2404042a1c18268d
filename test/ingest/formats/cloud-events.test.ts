/** CloudEvents in each mode of the HTTP binding, from the standard's own SDK and by hand. */
import { CloudEvent, HTTP } from 'cloudevents';
import { expect, test } from 'vitest';
import { refused } from '../../http/answers.ts';
import { answered } from '../../support/batch.ts';
import { BATCH, overEachTransport, STRUCTURED } from '../../support/cloud-events.ts';
import type { HttpResponse } from '../../support/http-client.ts';

overEachTransport(({ service, post }) => {
  /** The stored event of an answer. */
  const stored = async (response: HttpResponse) => {
    const id = answered(response).results[0]?.eventId ?? '';
    const [row] = await service().sql<{ type: string; payload: string; time: Date }[]>`
      SELECT type.name AS type, event.payload::text AS payload, event.created_at AS time
        FROM events AS event JOIN event_types AS type ON type.id = event.type_id WHERE event.id = ${id}`;
    if (row === undefined) throw new Error('The event is not stored.');
    return row;
  };

  const sent = (): CloudEvent<unknown> =>
    new CloudEvent({
      id: 'A234-1234-1234',
      source: '/mycontext/sub?x=1',
      type: 'com.example.someevent',
      time: '2026-01-31T08:30:00.123Z',
      subject: 'Euro € 😀 "quoted" 100%',
      comexampleextension1: 'value',
      data: { much: 'wow', n: [1, 2.5, null] },
    });

  test('the SDK delivers in binary and in structured mode', async () => {
    for (const message of [HTTP.binary(sent()), HTTP.structured(sent())]) {
      const { 'content-type': contentType, ...headers } = message.headers as Record<string, string>;
      const { type, payload, time } = await stored(
        await post(String(message.body), { ...headers, 'Content-Type': contentType ?? '' }),
      );
      expect({ type, time: time.toISOString() }).toEqual({
        type: 'com.example.someevent',
        time: '2026-01-31T08:30:00.123Z',
      });
      // The SDK of the standard reads the payload as the event that it has sent.
      const [read] = [HTTP.toEvent({ headers: { 'content-type': STRUCTURED }, body: payload })].flat();
      const { datacontenttype: _, ...attributes } = JSON.parse(String(read)) as Record<string, unknown>;
      const { datacontenttype: __, ...wanted } = JSON.parse(String(sent())) as Record<string, unknown>;
      expect(attributes).toEqual(wanted);
    }
  });

  test('data in JSON modes keeps its text', async () => {
    const event =
      '{"specversion":"1.0","id":"1","source":"s","type":"kept", "data" : {"n":1e400,"n":-0,"z":"\\u0000"},"time":null}';
    expect((await stored(await post(event, { 'Content-Type': STRUCTURED }))).payload).toBe(event);
    const batch = answered(
      await post(`[${event} , ${event}]`, { 'Content-Type': `${BATCH}; charset=utf-8` }),
    );
    expect(batch.stored).toBe(2);
    expect(answered(await post(' [ ] ', { 'Content-Type': BATCH })).results).toEqual([]);
  });

  const ATTRIBUTES = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': 's', 'ce-type': 'binary' };

  test('a batch is stored but for the events that are not valid', async () => {
    const good = sent().toString();
    const response = await post(`[${good},{"specversion":"1.0"},7]`, { 'Content-Type': BATCH });
    const { results } = answered(response);
    expect(results.map(({ details }) => details)).toEqual([
      undefined,
      'The attribute "id" is missing.',
      'A CloudEvent must be a JSON object.',
    ]);
  });

  test('a time to come is now', async () => {
    const before = Date.now();
    const { time } = await stored(await post('', { ...ATTRIBUTES, 'ce-time': '2999-01-01T00:00:00Z' }));
    expect(Math.abs(time.getTime() - before)).toBeLessThan(30_000);
  });

  test('a sender of web hooks needs a token to deliver', async () => {
    refused(
      await post('{}', { ...ATTRIBUTES, Authorization: null }),
      401,
      'AUTH_INVALID_TOKEN',
      'Invalid logging token',
    );
  });
});
