/** Every page in every state, size and theme, as pictures: see take.mjs. */
import { join } from 'node:path';

const SIZES = [
  { name: '1440', viewport: { width: 1440, height: 900 } },
  { name: '1024', viewport: { width: 1024, height: 768 } },
  {
    name: '390',
    viewport: { width: 390, height: 844 },
    isMobile: true,
    hasTouch: true,
    deviceScaleFactor: 2,
  },
];
const SCHEMES = ['light', 'dark'];
const REFUSAL = {
  status: 503,
  contentType: 'application/json',
  headers: { 'X-Request-Id': 'request-7' },
  body: '{"success":false,"error":"Service unavailable","details":"The database cannot be reached; try again shortly.","code":"UNAVAILABLE"}',
};
/** Of an app with much of everything. */
const MANY_TYPES = 60;

/**
 * @param open  a context of the browser with given options; without a session where the second argument is null
 * @param appId the app of the demo
 * @param to    the folder of the pictures
 * @param names of pages, and widths (`390`); empty: all of them
 */
export async function tour({ open, appId, to, names }) {
  const apps = { full: appId, ...(await fill(await open({}), appId)) };
  const widths = SIZES.filter(({ name }) => names.includes(name));
  const chosen = names.filter((name) => !SIZES.some((size) => size.name === name));
  const isWanted = ([name]) => chosen.length === 0 || chosen.includes(name);
  const pages = pagesOf(apps).filter(isWanted);
  for (const size of widths.length === 0 ? SIZES : widths)
    for (const colorScheme of SCHEMES) {
      const { name: width, ...rest } = size;
      const name = (page) => join(to, `${page}-${width}-${colorScheme}.png`);
      const member = await open({ ...rest, colorScheme });
      for (const [page, path, prepare] of pages) await picture(member, name(page), path, { prepare });
      // As they are in the light they are in the dark.
      if (colorScheme === 'light' && chosen.length === 0) await unfinished(member, pages, name);
      const visitor = await open({ ...rest, colorScheme }, null);
      for (const [page, path] of VISITORS.filter(isWanted)) await picture(visitor, name(page), path);
      await Promise.all([member.close(), visitor.close()]);
    }
}

const VISITORS = [
  ['sign-in', '/sign-in'],
  ['sign-up', '/sign-up'],
  ['password-reset', '/password-reset'],
  ['nowhere', '/nowhere'],
];

const press = (name) => async (page) => {
  await page.getByRole('button', { name }).first().click();
};

/** Names, addresses, and what is done before the picture is taken. */
function pagesOf({ full, empty, little, many }) {
  return [
    ['apps', '/'],
    ['explore', `/apps/${full}?range=7d`],
    ['explore-day', `/apps/${full}?range=24h`],
    ['explore-country', `/apps/${full}?range=30d&by=country&mode=accumulated`],
    ['explore-stat', `/apps/${full}?range=7d&of=duration_ms&stat=p95`],
    ['explore-condition', `/apps/${full}?range=7d&by=country&filter=device:phone`],
    ['explore-search', `/apps/${full}?range=7d&q=tents`],
    ['explore-ratio', `/apps/${full}?range=7d`, press(/^What the chart shows/)],
    ['explore-range', `/apps/${full}?range=7d`, press(/^Time range/)],
    ['explore-options', `/apps/${full}?range=7d`, press(/^Chart options/)],
    [
      'explore-filter',
      `/apps/${full}?range=7d`,
      (page) => page.getByRole('combobox', { name: 'Filter' }).click(),
    ],
    ['explore-event', `/apps/${full}?range=7d`, (page) => page.locator('.event-row').first().click()],
    ['explore-table', `/apps/${full}?range=24h&table=1`],
    ['explore-nothing', `/apps/${full}?from=2020-01-01T00:00Z&to=2020-01-02T00:00Z`],
    ['explore-little', `/apps/${little}?range=24h`],
    ['explore-many', `/apps/${many}?range=24h`],
    ['explore-empty', `/apps/${empty}`],
    ['types', `/apps/${full}/types`],
    ['types-many', `/apps/${many}/types`],
    ['types-empty', `/apps/${empty}/types`],
    ['fields', `/apps/${full}/fields`],
    ['usage', `/apps/${full}/usage`],
    ['settings', `/apps/${full}/settings`],
    ['token', `/apps/${full}/settings`, press('New resource token…')],
    ['palette', `/apps/${full}`, (page) => page.keyboard.press('Control+k')],
    ['account', '/account'],
  ];
}

/** The same pages while they load, and where the server refuses. */
async function unfinished(context, pages, name) {
  for (const [page, path, prepare] of pages.filter(([one]) => !one.startsWith('account'))) {
    if (prepare !== undefined) continue;
    await picture(context, name(`${page}-loading`), path, { answer: null });
    await picture(context, name(`${page}-error`), path, { answer: (route) => route.fulfill(REFUSAL) });
  }
}

/** @param answer to requests about apps: undefined: the server's, null: none */
async function picture(context, file, path, { prepare, answer } = {}) {
  const page = await context.newPage();
  if (answer !== undefined) await page.route(/\/api\/apps/, answer ?? (() => undefined));
  await page.goto(path);
  if (answer === null) await page.locator('main .skeleton, main [aria-busy=true]').first().waitFor();
  else await page.waitForLoadState('networkidle');
  if (prepare !== undefined) {
    await prepare(page);
    await page.waitForLoadState('networkidle');
  }
  await page.screenshot({ path: file });
  await page.close();
}

/** Apps with nothing, with one event, and with many types of long names, two of them hidden. */
async function fill(context, full) {
  const { request } = context;
  const send = async (method, path, data, headers = {}) => {
    const answer = await request.fetch(path, { method, data, headers });
    if (!answer.ok()) throw new Error(`${method} ${path}: ${await answer.text()}`);
    return (await answer.json()).data;
  };
  const app = (name) => send('POST', '/api/apps', { name });
  const empty = await app('Nothing yet');
  const little = await app('Little');
  const many = await app('An app with a name that is much longer than any name of an app should be');
  const store = async ({ loggingToken }, lines) => {
    const answer = await request.fetch('/v1/events', {
      method: 'POST',
      headers: { Authorization: `Bearer ${loggingToken}`, 'Content-Type': 'application/x-ndjson' },
      data: lines.map((line) => JSON.stringify(line)).join('\n'),
    });
    if (!answer.ok()) throw new Error(await answer.text());
  };
  const at = (minutes) => new Date(Date.now() - minutes * 60_000).toISOString();
  await store(little, [{ typeName: 'signed up', createdAt: at(90), payload: { plan: 'free' } }]);
  const names = Array.from(
    { length: MANY_TYPES },
    (_, n) => `checkout.payment.provider-${n % 7}.attempt.${n}.finished`,
  );
  const lines = names.flatMap((typeName, n) =>
    Array.from({ length: n === 0 ? 2_000 : 4 + n }, (_, i) => ({
      typeName,
      createdAt: at((i * 37 * (n + 1)) % 1_440),
      payload: { attempt: i, provider: `provider-${n % 7}`, error: n % 5 === 0 ? 'card declined' : null },
    })),
  );
  for (let first = 0; first < lines.length; first += 1_000)
    await store(many, lines.slice(first, first + 1_000));
  const { types } = await send('GET', `/api/apps/${many.appId}/types`);
  for (const { typeId } of types.slice(-2))
    await send('PATCH', `/api/apps/${many.appId}/types/${typeId}`, { hidden: true });
  // Fields are counted when their backfill has come to the first event.
  await send('POST', `/api/apps/${full}/declared-fields`, { path: 'country', kind: 'value', backfill: true });
  await send('POST', `/api/apps/${full}/declared-fields`, {
    path: 'duration_ms',
    kind: 'number',
    backfill: true,
  });
  for (let by = null; by === null; ) ({ by } = await send('GET', `/api/apps/${full}/series?by=country`));
  await context.close();
  return { empty: empty.appId, little: little.appId, many: many.appId };
}
