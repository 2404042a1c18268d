/** Real messages of every format with parts of them changed, dropped, repeated or moved: each answer is one of the description. */
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runs, sized } from '../../support/fuzz.ts';
import { startTestService, type TestService } from '../../support/service.ts';

let service: TestService;
beforeAll(async () => {
  // Changed names are new types.
  const config = { CREATE_LIMIT_PER_MINUTE: 0, NEW_TYPES_PER_MINUTE: 0, MAX_BATCH_BYTES: 5_000 };
  service = await startTestService({ config });
});
afterAll(() => service.stop());

const EVENT =
  '{"typeName":"a","createdAt":"2026-01-31T08:30:00.123Z","key":"k","payload":{"n":[1,-2.5e3,null,"é\\n"]}}';
const CLOUD_EVENT =
  '{"specversion":"1.0","id":"1","source":"/s","type":"a","time":"2026-01-31T08:30:00Z","ext":1,"data":{"a":"é"}}';
const MESSAGE =
  '{"type":"track","event":"a","messageId":"m","timestamp":"2026-01-31T08:30:00.1Z","sentAt":"2026-01-31T08:30:01Z","properties":{"a":"é"}}';
const LOG =
  '{"timeUnixNano":"1769848200123456789","severityNumber":9,"eventName":"a","body":{"stringValue":"é"},"attributes":[{"key":"log.record.uid","value":{"stringValue":"u"}}]}';
const LOGS = `{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"intValue":"1"}}]},"scopeLogs":[{"scope":{"name":"s"},"logRecords":[${LOG},${LOG}]}]}]}`;
const BULK =
  '{"create":{"_index":"a-2026.01.31","_id":"1"}}\n{"@timestamp":"2026-01-31T08:30:00Z","a":"é"}\n{"index":{}}\n{"b":1}\n';
const RECORD = '{"kind":"a","date":1769848200.123,"id":"1","user":{"id":7,"name":"é"}}';

test.each([
  ['a batch', '/v1/events', 'application/json', `{"events":[${EVENT},${EVENT}]}`],
  ['an array', '/v1/events', 'application/json', `[${EVENT},${EVENT}]`],
  ['lines', '/v1/events', 'application/x-ndjson', `${EVENT}\n${EVENT}\n`],
  ['long lines', '/v1/events', 'application/x-ndjson', `${EVENT}\n`.repeat(60)],
  [
    'records',
    '/v1/records?typeField=kind&type=b&timeField=date&keyField=user.id',
    'application/json',
    `[${RECORD},${RECORD}]`,
  ],
  [
    'lines of records',
    '/v1/records?typeField=kind&type=b&timeField=date&keyField=id',
    'application/x-ndjson',
    `${RECORD}\n${RECORD}\n`,
  ],
  ['a CloudEvent', '/v1/cloudevents', 'application/cloudevents+json', CLOUD_EVENT],
  ['CloudEvents', '/v1/cloudevents', 'application/cloudevents-batch+json', `[${CLOUD_EVENT},${CLOUD_EVENT}]`],
  ['logs in JSON', '/v1/otlp/v1/logs', 'application/json', LOGS],
  ['a message of Segment', '/v1/track', 'application/json', MESSAGE],
  [
    'messages of Segment',
    '/v1/batch',
    'application/json',
    `{"batch":[${MESSAGE},${MESSAGE}],"sentAt":"2026-01-31T08:30:01Z"}`,
  ],
  ['documents', '/v1/elasticsearch/_bulk', 'application/x-ndjson', BULK],
])('%s', async (_, path, type, text) => {
  const message = Buffer.from(text);
  const at = fc.nat(message.length - 1);
  const change = fc.record({
    at,
    to: at,
    how: fc.constantFrom('set', 'drop', 'repeat', 'move'),
    byte: fc.oneof(fc.constantFrom(...Buffer.from('{}[]",:\\\n0e-u')), fc.nat(255)),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { minLength: 1, maxLength: 4 }),
      fc.boolean(),
      async (changes, isGzip) => {
        const body = changes.reduce(changed, message);
        const { status } = await service.request({
          method: 'POST',
          path,
          body: isGzip ? gzipSync(body) : body,
          headers: {
            Authorization: `Bearer ${service.app.loggingToken}`,
            'Content-Type': type,
            ...(isGzip && { 'Content-Encoding': 'gzip' }),
          },
        });
        expect([200, 207, 400, 413]).toContain(status);
      },
    ),
    runs(sized(20, 40)),
  );
});

interface Change {
  readonly at: number;
  readonly to: number;
  readonly how: 'set' | 'drop' | 'repeat' | 'move';
  readonly byte: number;
}

function changed(message: Buffer, { at, to, how, byte }: Change): Buffer {
  const [start, end] = [Math.min(at, to), Math.max(at, to)];
  const part = message.subarray(start, end);
  switch (how) {
    case 'set':
      return Buffer.concat([message.subarray(0, at), Buffer.from([byte]), message.subarray(at + 1)]);
    case 'drop':
      return Buffer.concat([message.subarray(0, start), message.subarray(end)]);
    case 'repeat':
      return Buffer.concat([message.subarray(0, end), part, message.subarray(end)]);
    case 'move':
      return Buffer.concat([part, message.subarray(0, start), message.subarray(end)]);
  }
}
