/** GET /v1/apps/:appId/export over both transports: what comes, how it goes on, and how it ends early. */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { createGunzip } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken, revokeResourceToken } from '../../../src/apps/resource-tokens.ts';
import { TimeSlice } from '../../../src/base/time-slice.ts';
import { CsvLines } from '../../../src/read/export/csv-lines.ts';
import { checkAnswer } from '../../support/described.ts';
import { startTestService, type TestService, until } from '../../support/service.ts';
import { storeRows } from '../../support/stored-events.ts';

const DAY_MS = 86_400_000;
const PAYLOADS = ['{"n":1e400,\n "a":-0}', '{"s":"\\u0000\\ud800","quote":"\\""}', '{"status":500}', '{}'];
const FILLER = 'x'.repeat(10_000);

interface Line {
  readonly id: string;
  readonly typeId: string;
  readonly type: string;
  readonly createdAt: string;
}

describe('over HTTP,', () => {
  let service: TestService;
  let token: { resourceToken: string; tokenId: string };
  /** An app with more than what sockets and buffers hold. */
  let large: { appId: string; events: number };

  beforeAll(async () => {
    service = await startTestService({ config: { READ_LIMIT_PER_MINUTE: 0 } });
    for (let i = 0; i < 20; i += 1) {
      const response = await service.request({
        method: 'POST',
        path: '/public/create_event',
        body: service
          .body(PAYLOADS[i % 4] ?? '')
          .replace(`"typeId":"${service.type.typeId}"`, `"typeName":"type \\"${i % 2}\\", ü"`),
      });
      expect(response.status, response.body).toBe(201);
    }
    large = { appId: (await service.newApp()).appId, events: 3_000 };
    await storeLarge();
    const apps = [service.app.appId, large.appId];
    token = await createResourceToken(service.sql, { name: 'export', appIds: apps, expiresInSeconds: null });
  });
  afterAll(() => service.stop());

  async function storeLarge(): Promise<void> {
    const { sql, database } = service;
    const type = await service.newType({ appId: large.appId, loggingToken: '' }, 'large');
    const [ids] = await sql<{ appId: number; typeId: number }[]>`
      SELECT app_id AS "appId", id AS "typeId" FROM event_types WHERE public_id = ${type.typeId}`;
    const day = Math.floor(Date.now() / DAY_MS) * DAY_MS;
    const rows = Array.from({ length: large.events }, (_, i) => ({
      id: `${(day + i)
        .toString(16)
        .padStart(12, '0')
        .replace(/^(.{8})/, '$1-')}-7000-8000-000000000000`,
      appId: ids?.appId ?? 0,
      typeId: ids?.typeId ?? 0,
      at: day + i,
      payload: `{"n":${i},"filler":"${FILLER}"}`,
    }));
    for (let at = 0; at < rows.length; at += 500)
      await storeRows(sql, database.engine, rows.slice(at, at + 500));
  }

  /** Begins a request; the caller reads the answer. */
  async function begin(
    path: string,
    { authorization = `Bearer ${token.resourceToken}`, ...headers }: Record<string, string> = {},
  ): Promise<IncomingMessage> {
    const request = get({
      port: service.port,
      path: `/v1/apps/${path}`,
      headers: { authorization, ...headers },
      agent: false,
    });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return response;
  }

  const exported = async (query = ''): Promise<string> => {
    const response = await begin(`${service.app.appId}/export${query}`);
    const body = await text(response);
    expect(response.statusCode, body).toBe(200);
    const headers = Object.fromEntries(
      Object.entries(response.headers).map(([name, v]) => [name, String(v)]),
    );
    checkAnswer({ path: `/v1/apps/${service.app.appId}/export` }, { status: 200, headers, body });
    return body;
  };
  const linesOf = (body: string): Line[] =>
    body
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Line);
  const eventsRead = async (): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    return Number(/^tidemark_exported_events_total (\d+)$/m.exec(body)?.[1]);
  };
  const running = async (): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    return Number(/^tidemark_exports_running (\d+)$/m.exec(body)?.[1]);
  };

  test('every event is a line, in order, with the payload as it was sent', async () => {
    const body = await exported();
    const { body: page } = await service.request({
      path: `/v1/apps/${service.app.appId}/events?limit=1000`,
      headers: { Authorization: `Bearer ${token.resourceToken}` },
    });
    const { events } = JSON.parse(page).data;
    expect(events).toHaveLength(20);
    const names = [0, 1].map((n) => `type "${n}", ü`);
    const lines = body.split('\n').slice(0, -1);
    for (const [i, line] of lines.entries()) {
      const { id, typeId, createdAt } = events[i];
      const known = JSON.stringify({ id, typeId, type: names[i % 2], createdAt });
      expect(line).toBe(`${known.slice(0, -1)},"payload":${(PAYLOADS[i % 4] ?? '').replace('\n', ' ')}}`);
    }
  });

  test('the answer says what it is, and gzip is sent to who takes it', async () => {
    const plain = await begin(`${service.app.appId}/export`);
    expect(plain.headers).toMatchObject({
      'content-type': 'application/x-ndjson',
      'content-disposition': expect.stringMatching(
        /^attachment; filename="[\w.-]+_until_[\d-]{10}\.ndjson"; /,
      ),
      vary: 'Accept-Encoding',
    });
    expect(plain.headers['content-encoding']).toBeUndefined();
    expect(plain.headers['x-searched-by']).toBeUndefined();
    const body = await text(plain);
    const searched = await begin(`${service.app.appId}/export?word=nowhere`);
    expect(searched.headers['x-searched-by']).toBe('scan');
    expect(await text(searched)).toBe('');
    for (const query of ['word=nowhere&from=2999-01-01', 'filter=nope:1&from=2999-01-01', 'filter=nope:1']) {
      const nothing = await begin(`${service.app.appId}/export?${query}`);
      expect(nothing.headers['x-searched-by'], query).toBe('scan');
      expect(await text(nothing)).toBe('');
    }
    for (const [accepted, isGzipped] of [
      ['gzip', true],
      ['br, GZIP;q=0.5', true],
      ['*', true],
      ['gzip;q=0', false],
      ['deflate', false],
    ] as const) {
      const response = await begin(`${service.app.appId}/export`, { 'accept-encoding': accepted });
      expect(response.headers['content-encoding']).toBe(isGzipped ? 'gzip' : undefined);
      expect(await text(isGzipped ? response.pipe(createGunzip()) : response)).toBe(body);
    }
  });

  test('CSV has the same columns', async () => {
    const lines = (await exported()).split('\n').slice(0, -1);
    const expected = lines.map((line) => {
      const { id, typeId, type, createdAt } = JSON.parse(line) as Line;
      const payload = line.slice(line.indexOf(',"payload":') + 11, -1);
      const quoted = [typeId, type].map((value) => `"${value.replaceAll('"', '""')}"`);
      return `${id},${quoted.join(',')},${createdAt},"${payload.replaceAll('"', '""')}"\r\n`;
    });
    expect(await exported('?format=csv')).toBe(`id,typeId,type,createdAt,payload\r\n${expected.join('')}`);
  });

  test('CSV has the fields that are asked for, and its formulas are texts', async () => {
    const app = await service.newApp();
    const bodies = [
      '{"n":-1e400,"user":{"name":"Ann, \\"A\\"","tags":["x",-2]},"payload":"mine","id":12,"when":123456789012345678}',
      '{"n":"=1+1","user":["@sum",{"name":"+7"}],"payload":null,"id":"00123","when":"31.01.2026"}',
    ];
    for (const payload of bodies) {
      const head = JSON.stringify({ loggingToken: app.loggingToken, typeName: 't' }).slice(0, -1);
      const { status, body } = await service.request({
        method: 'POST',
        path: '/public/create_event',
        body: `${head},"payload":${payload}}`,
      });
      expect(status, body).toBe(201);
    }
    const { resourceToken } = await createResourceToken(service.sql, {
      ...{ name: 'columns', appIds: [app.appId], expiresInSeconds: null },
    });
    const ask = (query: string): Promise<IncomingMessage> =>
      begin(`${app.appId}/export?${query}`, { authorization: `Bearer ${resourceToken}` });
    const paths = ['n', 'user.name', 'user.tags', 'payload', 'user'];
    const query = `format=csv&${paths.map((path) => `column=${path}`).join('&')}`;
    /** The lines without what stands before and behind these columns. */
    const columns = async (formulas: string): Promise<string[]> =>
      (await text(await ask(query + formulas)))
        .split('\r\n')
        .map((line) => line.replace(/^(?:[^,]+,){4}/, '').replace(/,"\{.*$/, ''));
    expect(await columns('')).toEqual([
      '"n","user.name","user.tags","payload.payload","user",payload',
      '"-1e400","Ann, ""A""","x, -2","mine",',
      '"\'=1+1","\'+7",,"null","\'@sum"',
      '',
    ]);
    expect((await columns('&formulas=keep'))[2]).toBe('"=1+1","+7",,"null","@sum"');
    const forms =
      'format=csv&column=id&column=when&column=payload.id&separator=semicolon&bom=true&texts=quoted';
    const bytes = (await text(await ask(forms))).split('\r\n');
    expect(bytes[0]?.replace('\ufeff', '')).toBe(
      'id;typeId;type;createdAt;"payload.id";"when";"payload.payload.id";payload',
    );
    expect(bytes.slice(1).map((line) => line.split(';').slice(4, 6))).toEqual([
      ['"12"', '"=""123456789012345678"""'],
      ['"=""00123"""', '"=""31.01.2026"""'],
      [],
    ]);
    for (const wrong of ['separator=pipe', 'bom=1', 'texts=yes'])
      expect((await ask(`format=csv&${wrong}`)).statusCode).toBe(400);
    for (const wrong of ['column=n', 'format=csv&column=a..b']) {
      const refused = await ask(wrong);
      expect(refused.statusCode).toBe(400);
      expect(await text(refused)).toContain('column ');
    }
  });

  test('texts that a spreadsheet may read as another value stay texts', async () => {
    const form = { formulas: 'escape', separator: 'comma', bom: false, texts: 'quoted' } as const;
    const cell = async (value: unknown): Promise<string | undefined> => {
      const head = `{"id":"${'0'.repeat(36)}","typeId":"t","type":"t","createdAt":"2026-01-31T08:30:00.123Z"`;
      const line = `${head},"payload":${JSON.stringify({ v: value })}}`;
      const csv = new CsvLines(form, [{ title: 'v', path: ['v'] }]);
      const converted = await csv.convert(Buffer.from(line), new TimeSlice());
      return /Z,(".*"),"\{/.exec(converted.toString())?.[1];
    };
    const kept = ['00123', '5%', 'Jan 5', 'MARCH1', '(5)', '$5', 'TRUE', 'false', '٣', '10:30'];
    for (const text of kept) expect(await cell(text)).toBe(`"=""${text}"""`);
    expect(await cell('5"')).toBe('"=""5"""""""');
    for (const text of ['true story', 'none', `${'word '.repeat(9)}5`])
      expect(await cell(text)).toBe(`"${text}"`);
    expect([await cell(12), await cell(1_234_567_890)]).toEqual(['"12"', '"1234567890"']);
  });

  test('bytes of any text become cells, and other work of the event loop comes between the lines of a part', async () => {
    const form = { formulas: 'keep', separator: 'tab', bom: false, texts: 'exact' } as const;
    const csv = new CsvLines(form);
    const id = '0'.repeat(36);
    const payload = '{"a":"\\"é日\u{1f600}","b":[]}';
    const line = `{"id":"${id}","typeId":"t","type":"日 \\"1\\"","createdAt":"2026-01-31T08:30:00.123Z","payload":${payload}}\n`;
    const cells = [id, '"t"', '"日 ""1"""', '2026-01-31T08:30:00.123Z', `"${payload.replaceAll('"', '""')}"`];
    const expected = `${cells.join('\t')}\r\n`;
    expect((await csv.convert(Buffer.from(line.repeat(3)), new TimeSlice())).toString()).toBe(
      expected.repeat(3),
    );
    let turns = 0;
    const count = setInterval(() => {
      turns += 1;
    });
    const many = await csv.convert(Buffer.from(line.repeat(20_000)), new TimeSlice());
    clearInterval(count);
    expect(many.toString()).toBe(expected.repeat(20_000));
    expect(turns).toBeGreaterThan(0);
  });

  test('the file has the name of the app and the days of the range', async () => {
    const nameOf = async (name: string, query: string): Promise<string | undefined> => {
      await service.sql`UPDATE apps SET name = ${name} WHERE public_id = ${service.app.appId}`;
      const response = await begin(`${service.app.appId}/export?${query}`);
      await text(response);
      return response.headers['content-disposition'];
    };
    expect(await nameOf('Café "1"/é\u202e', 'format=csv&from=2026-01-01&to=2026-02-01')).toBe(
      `attachment; filename="Cafe-1-e_2026-01-01_2026-01-31.csv"; filename*=UTF-8''Caf%C3%A9%20-1-%C3%A9-_2026-01-01_2026-01-31.csv`,
    );
    const day = 'from=2026-01-30T23:00Z&to=2026-01-31T23:00Z&timezone=Europe/Berlin';
    expect(await nameOf("日本 (it's)", day)).toBe(
      `attachment; filename="it-s_2026-01-31.ndjson"; filename*=UTF-8''%E6%97%A5%E6%9C%AC%20%28it%27s%29_2026-01-31.ndjson`,
    );
    expect(await nameOf('日本', 'to=2026-02-01')).toContain('filename="events_until_2026-01-31.ndjson"');
  });

  test('scope and filters choose events', async () => {
    const all = linesOf(await exported());
    const name = encodeURIComponent('type "1", ü');
    expect(linesOf(await exported(`?typeName=${name}`))).toEqual(all.filter((_, i) => i % 2 === 1));
    expect(linesOf(await exported('?filter=status>=500'))).toEqual(all.filter((_, i) => i % 4 === 2));
    expect(linesOf(await exported('?filter=-status:*&q=1e400'))).toEqual(all.filter((_, i) => i % 4 === 0));
    const from = all[7]?.createdAt ?? '';
    expect(linesOf(await exported(`?from=${from}`))).toEqual(
      all.filter(({ createdAt }) => createdAt >= from),
    );
    expect(linesOf(await exported(`?to=${from}`))).toEqual(all.filter(({ createdAt }) => createdAt < from));
    expect(await exported('?from=2020-01-01&to=2020-01-02')).toBe('');
  });

  test('it goes on after the last event that was received, and after a cursor', async () => {
    const all = linesOf(await exported());
    expect(linesOf(await exported(`?cursor=${all[4]?.id}`))).toEqual(all.slice(5));
    expect(linesOf(await exported(`?cursor=${all.at(-1)?.id}`))).toEqual([]);
    const { body } = await service.request({
      path: `/v1/apps/${service.app.appId}/events?limit=3`,
      headers: { Authorization: `Bearer ${token.resourceToken}` },
    });
    const { nextCursor } = JSON.parse(body).data.pagination;
    expect(linesOf(await exported(`?cursor=${nextCursor}`))).toEqual(all.slice(3));
  });

  test('what is wrong is refused before anything is sent', async () => {
    for (const [query, status, details] of [
      ['?cursor=x', 400, 'cursor must be the id of an event'],
      ['?cursor=0196a000-0000-7000-8000-000000000000', 404, 'The app has no event with the id of cursor'],
      ['?filter=a', 400, 'filter is wrong at column 2: one of : < <= > >= must follow the name.'],
      ['?filter=a:1&filter=b', 400, 'filter 2 of 2 is wrong at column 2'],
      ['?format=xml', 400, 'format must be ndjson or csv'],
      ['?typeId=typ_none', 404, ''],
    ] as const) {
      const response = await begin(`${service.app.appId}/export${query}`);
      expect(response.statusCode, query).toBe(status);
      expect(JSON.parse(await text(response)).details).toContain(details);
    }
    expect(await running()).toBe(0);
  });

  test('a reader that pauses gets all of it later, and holds no transaction meanwhile', async () => {
    const before = await eventsRead();
    const response = await begin(`${large.appId}/export`);
    await once(response, 'readable');
    const received = response.read() as Buffer;
    // It reads nothing more. Whatever the server does ahead ends, without a snapshot that keeps vacuum from its work.
    const held = async (): Promise<number> => {
      const sessions = await service.sql`
        SELECT query FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'tidemark reads'
           AND (backend_xmin IS NOT NULL OR state <> 'idle')`;
      return sessions.length;
    };
    // Asked again and again: an export that does not wait for its reader would come to its end.
    let read = await eventsRead();
    for (let same = 0; same < 40; same += 1) {
      const now = await eventsRead();
      if (now !== read) same = 0;
      read = now;
    }
    await until(async () => (await held()) === 0, 'no transaction is open');
    expect(read - before).toBeLessThan(large.events);
    const rest = await text(response);
    const lines = (received.toString() + rest).split('\n');
    expect(lines).toHaveLength(large.events + 1);
    expect(lines.slice(0, -1).every((line, i) => line.includes(`"n":${i},`))).toBe(true);
  });

  test('a token has at most two at a time, and a client that leaves gives its place back', async () => {
    const two = [await begin(`${large.appId}/export`), await begin(`${large.appId}/export`)];
    const third = await begin(`${large.appId}/export`);
    expect(third.statusCode).toBe(429);
    expect(third.headers['retry-after']).toBeDefined();
    expect(JSON.parse(await text(third))).toMatchObject({
      code: 'TOO_MANY_EXPORTS',
      error: 'Too many exports',
    });
    for (const response of two) response.destroy();
    await until(async () => (await running()) === 0, 'no export runs');
    const head = await service.request({
      method: 'HEAD',
      path: `/v1/apps/${service.app.appId}/export`,
      headers: { Authorization: `Bearer ${token.resourceToken}` },
    });
    expect(head.status).toBe(200);
    expect(await running()).toBe(0);
  });

  test('of several that begin at once two are sent, and the others are refused with 429', async () => {
    const all = await Promise.all(Array.from({ length: 5 }, () => begin(`${large.appId}/export`)));
    expect(all.map(({ statusCode }) => statusCode).sort()).toEqual([200, 200, 429, 429, 429]);
    for (const response of all) response.destroy();
    await until(async () => (await running()) === 0, 'no export runs');
  });

  test('it is cut, and not ended, when its token is revoked', async () => {
    const own = await createResourceToken(service.sql, {
      name: 'own',
      appIds: [large.appId],
      expiresInSeconds: null,
    });
    const response = await begin(`${large.appId}/export`, { authorization: `Bearer ${own.resourceToken}` });
    await once(response, 'readable');
    await revokeResourceToken(service.sql, own.tokenId);
    const refused = async (): Promise<boolean> => {
      const { status } = await service.request({
        path: '/v1/apps',
        headers: { Authorization: `Bearer ${own.resourceToken}` },
      });
      return status === 401;
    };
    await until(refused, 'the token is refused');
    await expect(text(response)).rejects.toThrow('aborted');
    await until(async () => (await running()) === 0, 'no export runs');
  });

  test('a stop of the server cuts it', async () => {
    const response = await begin(`${large.appId}/export`);
    await once(response, 'readable');
    const cut = expect(text(response)).rejects.toThrow('aborted');
    await service.stop();
    await cut;
  });
});
