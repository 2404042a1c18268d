/** Bodies that take room without an end: the others do not notice. */
import { describe, expect, test } from 'vitest';
import { TRANSPORTS } from '../support/fuzz.ts';
import { HttpConnection, type HttpResponse, requestBytes } from '../support/http-client.ts';
import {
  CREATE_EVENT,
  TestClock,
  type TestService,
  type TestServiceOptions,
  until,
  withTestService,
} from '../support/service.ts';
import { created, invalidBody, refused } from './answers.ts';

const MIB = 1_048_576;

/** The value of a metric, with these labels where it has any. */
async function metric(service: TestService, name: string): Promise<number> {
  const { body } = await service.request({ path: '/metrics' });
  const line = body.split('\n').find((one) => one.startsWith(`${name} `));
  return Number(line?.slice(name.length));
}

const CUT_FOR_ROOM = 'tidemark_request_bodies_cut_total{reason="room"}';
const CUT_FOR_PACE = 'tidemark_request_bodies_cut_total{reason="pace"}';

interface Holding {
  readonly path?: string;
  /** The address that it is sent from. */
  readonly from?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly announced?: number;
  readonly sent?: number;
}

/** A connection that announces a body, sends so much of it, and falls silent. */
async function hold(service: TestService, options: Holding = {}): Promise<HttpConnection> {
  const { path = CREATE_EVENT, from, headers = {}, announced = MIB, sent = announced - 1 } = options;
  const connection = await HttpConnection.open(service.port, from);
  const head = {
    'Content-Type': 'application/json',
    'Content-Length': String(announced),
    ...headers,
  };
  await connection.write(requestBytes({ method: 'POST', path, headers: head }));
  await connection.write(Buffer.alloc(sent, ' '));
  return connection;
}

/** Producers post while others hold what they can: each event must be stored. */
async function expectProducersServed(service: TestService, events = 25): Promise<void> {
  for (let posted = 0; posted < events; posted += 1) created(await service.post());
}

/** A body of so many bytes. */
function large(service: TestService, bytes: number): string {
  const empty = service.body('{"a":""}').length;
  return service.body(`{"a":"${'x'.repeat(bytes - empty)}"}`);
}

describe.each(TRANSPORTS)('over %s,', (transport) => {
  const withService = (
    options: TestServiceOptions,
    work: (service: TestService) => Promise<void>,
  ): Promise<void> =>
    withTestService(
      {
        transport,
        database: 'shared',
        ...options,
        config: { CREATE_LIMIT_PER_MINUTE: 0, ...options.config },
      },
      work,
    );

  test('a body of the dashboard has at most 64 KiB, whatever the route: sixteen silent megabytes are refused and hold nothing', async () => {
    await withService({}, async (service) => {
      const held = await Promise.all(
        Array.from({ length: 16 }, () => hold(service, { path: '/api/session' })),
      );
      for (const connection of held)
        refused(await connection.response(), 413, 'PAYLOAD_TOO_LARGE', 'Payload too large');
      await expectProducersServed(service);
      expect(await metric(service, 'tidemark_request_body_bytes')).toBe(0);
      for (const connection of held) connection.destroy();
      for (const [method, path] of [
        ['POST', '/api/session'],
        ['POST', '/api/users'],
        ['POST', '/api/password-resets'],
        ['POST', '/api/apps'],
        ['PATCH', '/api/apps/app_00000000000000000000'],
        ['DELETE', '/api/session'],
      ] as const) {
        const send = (bytes: number): Promise<HttpResponse> =>
          service.request({ method, path, body: `{}${' '.repeat(bytes - 2)}` });
        expect([413, 404, 405], path).not.toContain((await send(65_536)).status);
        refused(await send(65_537), 413, 'PAYLOAD_TOO_LARGE', 'Payload too large');
      }
    });
  });

  test('producers are served, with small bodies and large, while silent bodies of one address hold what they can', async () => {
    await withService({}, async (service) => {
      const held: HttpConnection[] = [];
      for (let round = 0; round < 4; round += 1) {
        held.push(
          ...(await Promise.all(Array.from({ length: 6 }, () => hold(service, { from: '127.0.0.2' })))),
        );
        await expectProducersServed(service);
        created(await service.request({ method: 'POST', path: CREATE_EVENT, body: large(service, 900_000) }));
      }
      expect(await metric(service, CUT_FOR_ROOM)).toBeGreaterThanOrEqual(10);
      expect(await metric(service, 'tidemark_request_body_bytes')).toBeLessThanOrEqual(12 * MIB);
      // And while those of eight addresses do, also from one of them.
      for (let round = 0; round < 3; round += 1) {
        for (let address = 1; address <= 8; address += 1)
          held.push(await hold(service, { from: `127.0.0.${address}` }));
        await expectProducersServed(service);
        created(await service.request({ method: 'POST', path: CREATE_EVENT, body: large(service, 900_000) }));
      }
      expect(await metric(service, 'tidemark_request_bodies_refused_total')).toBe(0);
      for (const connection of held) connection.destroy();
    });
  });

  test('a cut body gets a response that says so, a log line and a metric, and its connection is closed', async () => {
    await withService({}, async (service) => {
      const held = await Promise.all(Array.from({ length: 13 }, () => hold(service, { from: '127.0.0.2' })));
      const cut = await until(() => held.some(({ isOver }) => isOver), 'one of them is cut').then(() =>
        held.find(({ isOver }) => isOver),
      );
      const response = await cut?.response();
      if (response === undefined) throw new Error('It was cut without an answer.');
      refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
      expect(Number(response.headers['retry-after'])).toBeGreaterThanOrEqual(1);
      const lines = (): readonly Record<string, unknown>[] =>
        service.log.filter(({ msg }) => msg === 'http: aborted slow request bodies');
      await until(() => lines().length > 0, 'the log says so');
      for (let more = 0; more < 5; more += 1) held.push(await hold(service, { from: '127.0.0.2' }));
      await until(async () => (await metric(service, CUT_FOR_ROOM)) >= 6, 'others are cut');
      expect(lines()).toHaveLength(1);
      expect(lines()[0]).toMatchObject({ level: 'warn', cutForPace: 0, heaviestAddress: '127.0.0.2' });
      expect(lines()[0]?.cutForRoom).toBeGreaterThanOrEqual(1);
      for (const connection of held) connection.destroy();
    });
  });

  test('clients behind a trusted proxy are told apart by its header', async () => {
    await withService({ config: { TRUST_PROXY: 1 } }, async (service) => {
      const held: HttpConnection[] = [];
      const attack = async (count: number): Promise<void> => {
        for (let more = 0; more < count; more += 1)
          held.push(await hold(service, { headers: { 'X-Forwarded-For': '192.0.2.1' } }));
      };
      await attack(8);
      const honest = await hold(service, { headers: { 'X-Forwarded-For': '192.0.2.2' }, sent: 500_000 });
      await attack(12);
      await until(async () => (await metric(service, CUT_FOR_ROOM)) >= 8, 'bodies are cut');
      expect(honest.isOver).toBe(false);
      for (const connection of [...held, honest]) connection.destroy();
    });
  });

  test('memory is used for what has arrived, not for what was announced', async () => {
    await withService({}, async (service) => {
      const connections = 500;
      created(await service.post());
      const before = process.memoryUsage().arrayBuffers;
      const held = await Promise.all(
        Array.from({ length: connections }, () => hold(service, { sent: 2, announced: MIB })),
      );
      await until(
        async () => (await metric(service, 'tidemark_request_body_bytes')) === 2 * connections,
        'all have come',
      );
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(40_000_000);
      for (const connection of held) connection.destroy();
    });
  });

  test('a body that falls silent is refused after five seconds, one that keeps its pace is not', async () => {
    const clock = new TestClock();
    await withService({ clock }, async (service) => {
      const body = Buffer.from(large(service, 300_000));
      const paced = await HttpConnection.open(service.port);
      await paced.write(requestBytes({ method: 'POST', path: CREATE_EVENT, body }).subarray(0, -body.length));
      for (let from = 0; from < 300_000; from += 100_000) {
        await paced.write(body.subarray(from, from + 90_000));
        const silent = await hold(service, { announced: 100, sent: 50 });
        await until(
          async () => (await metric(service, 'tidemark_request_body_bytes')) >= from + 90_050,
          'both have come so far',
        );
        clock.advance(5_001);
        expect(invalidBody(await silent.response())).toContain('5 seconds');
        await silent.ended();
        await paced.write(body.subarray(from + 90_000, from + 100_000));
      }
      created(await paced.response());
      expect(await metric(service, CUT_FOR_PACE)).toBe(3);
      paced.destroy();
      // And one of which nothing arrives.
      const silent = await hold(service, { sent: 0 });
      created(await service.post());
      clock.advance(5_001);
      invalidBody(await silent.response());
      await silent.ended();
    });
  });
});
