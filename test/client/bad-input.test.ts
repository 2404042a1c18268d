/** The Node and the Python client with what could never be stored: the same vectors, bounds and callbacks. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { EventLogger } from '../../client/src/index.ts';
import { storedIds } from '../support/batch.ts';
import { sharedService, type TestService } from '../support/service.ts';

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const VECTORS_FILE = here('../../client/test-vectors/events.json');
const YEAR_MS = 365 * 24 * 3_600_000;

interface Vector {
  readonly name: string;
  readonly type: string;
  readonly repeat?: number;
  /** JSON text, with so many characters added to its last text. */
  readonly payload: string;
  readonly padding?: number;
  readonly accepted: boolean;
}
const VECTORS = JSON.parse(readFileSync(VECTORS_FILE, 'utf8')) as readonly Vector[];

/** What came of the vectors, of an event that is refused for good, and of one after it. */
interface Outcome {
  readonly accepted: readonly boolean[];
  /** Codes that a callback got, which throws each time. */
  readonly codes: readonly string[];
  readonly stored: number;
  readonly refused: number;
  readonly waiting: number;
  /** Of five events for a queue of three, by what is dropped. */
  readonly newest: readonly [accepted: readonly boolean[], waiting: number, dropped: number];
  readonly oldest: readonly [accepted: readonly boolean[], waiting: number, dropped: number];
  /** What was written to standard error. */
  readonly said: string;
}

async function byNode({ url, app }: TestService): Promise<Outcome> {
  const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const codes: string[] = [];
  const logger = new EventLogger({
    ...{ url, loggingToken: app.loggingToken, lingerMs: 1 },
    onRefused: ({ code }) => {
      codes.push(code);
      throw new Error('The callback fails');
    },
  });
  const accepted = VECTORS.map(({ type, repeat = 1, payload, padding = 0 }) => {
    try {
      const text = payload.replace(/"(?="\}$)/, `"${'x'.repeat(padding)}`);
      return logger.log(type.repeat(repeat), JSON.parse(text));
    } catch {
      return false;
    }
  });
  for (const _ of [1, 2]) logger.log('seen', { late: true }, { createdAt: new Date(Date.now() + YEAR_MS) });
  await logger.flush();
  logger.log('seen', { after: true });
  await logger.flush();
  const { stored, refused, waiting } = logger.stats;
  await logger.close();
  const bounded = (drop: 'newest' | 'oldest'): Outcome['newest'] => {
    const full = new EventLogger({ url, loggingToken: 't', maxQueueEvents: 3, drop });
    const kept = [1, 2, 3, 4, 5].map((n) => full.log('seen', { n }));
    const { waiting: left, dropped } = full.stats;
    void full.close({ timeoutMs: 0 });
    return [kept, left, dropped];
  };
  const [newest, oldest] = [bounded('newest'), bounded('oldest')];
  const text = said.mock.calls.map(([line]) => String(line)).join('');
  said.mockRestore();
  return { accepted, codes, stored, refused, waiting, newest, oldest, said: text };
}

async function byPython({ url, app }: TestService): Promise<Outcome> {
  const args = [here('bad_input.py'), here('../../client/python'), url, app.loggingToken, VECTORS_FILE];
  const child = spawn('python3', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let [output, said] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const [code] = await once(child, 'close');
  expect(code, said).toBe(0);
  return { ...(JSON.parse(output) as Omit<Outcome, 'said'>), said };
}

describe.each([
  ['Node', byNode],
  ['Python', byPython],
] as const)('the %s client', (_, run) => {
  let service: TestService;
  let outcome: Outcome;
  beforeAll(async () => {
    service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0 } });
    outcome = await run(service);
  });

  test.each(VECTORS.map((vector, index) => [vector.name, vector.accepted, index] as const))(
    'accepts or refuses at once: %s',
    (_name, accepted, index) => {
      expect(outcome.accepted[index]).toBe(accepted);
    },
  );

  test('stores what it has accepted, and never sends again what was refused for good', async () => {
    const good = VECTORS.filter(({ accepted }) => accepted).length;
    expect(outcome).toMatchObject({ stored: good + 1, refused: 2, waiting: 0 });
    expect(await storedIds(service)).toHaveLength(good + 1);
    const late = await service.sql`
      SELECT FROM events JOIN apps ON apps.id = app_id
       WHERE public_id = ${service.app.appId} AND payload::text LIKE '%"late"%'`;
    expect(late).toHaveLength(0);
  });

  test('is not broken by a callback that fails each time, and says so once', () => {
    expect(outcome.codes).toEqual(['EVENT_IN_FUTURE', 'EVENT_IN_FUTURE']);
    expect(outcome.said.split('\n').filter((line) => line.startsWith('tidemark-client: '))).toEqual([
      expect.stringMatching(/on_?refused .*failed/i),
    ]);
  });

  test('holds so many events as it may, drops the newest or the oldest, and counts them', () => {
    expect(outcome.newest).toEqual([[true, true, true, false, false], 3, 2]);
    expect(outcome.oldest).toEqual([[true, true, true, true, true], 3, 2]);
  });
});
