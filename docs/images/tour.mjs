/** Every page in every state, size and theme, as pictures: see take.mjs. */
import { join } from 'node:path';

const SIZES = [
  { name: '1440', viewport: { width: 1440, height: 900 } },
  { name: '2560', viewport: { width: 2560, height: 1440 } },
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

const both = (first, second) => async (page) => {
  await press(first)(page);
  await press(second)(page);
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
    ['explore-sum', `/apps/${full}?range=30d&of=total&stat=sum&by=country&width=1d`],
    ['explore-sum-so-far', `/apps/${full}?range=30d&of=total&stat=sum&by=country&mode=running`],
    ['explore-measure', `/apps/${full}?range=7d&of=duration_ms&stat=p95`, press(/^What the chart shows/)],
    ['explore-unread', `/apps/${full}?range=7d&of=nothing&stat=sum`],
    ['explore-no-match', `/apps/${full}?range=24h&filter=country:XX`],
    ['explore-save', `/apps/${full}?range=7d`, both(/^Saved views/, 'Save this view…')],
    ['explore-count', `/apps/${full}?range=7d&filter=device:phone`, press(/from now on…/)],
    ['overview', `/apps/${full}/overview`],
    ['board', `/apps/${full}/boards?tz=Europe/Berlin`],
    ['board-range', `/apps/${full}/boards?range=30d&tz=Europe/Berlin`],
    ['board-full', `/apps/${full}/boards?tz=Europe/Berlin`, press('Full screen')],
    ['board-change', `/apps/${full}/boards?tz=Europe/Berlin`, press('Change board')],
    ['board-share', `/apps/${full}/boards?tz=Europe/Berlin`, press('Share…')],
    ['board-empty', `/apps/${empty}/boards`],
    ['delivery', `/apps/${full}/delivery`],
    ['delivery-empty', `/apps/${empty}/delivery`],
    ['alert', `/apps/${full}/delivery`, press('New alert…')],
    ['webhook', `/apps/${full}/delivery`, press('New webhook…')],
    ['producer', `/apps/${full}/settings`, press(/^Show the token of/)],
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
  await send('POST', `/api/apps/${full}/declared-fields`, {
    ...{ path: 'total', kind: 'number', by: 'country', unit: '€', decimals: 2, backfill: true },
  });
  const viewIds = [];
  for (const [name, search] of [
    ['Events', 'range=24h'],
    ['By country', 'range=30d&by=country'],
    ['Revenue by country', 'range=30d&of=total&stat=sum&by=country&width=1d'],
    ['p95 of requests', 'range=7d&of=duration_ms&stat=p95'],
    ['By device, which is not counted', 'range=7d&by=device'],
    ['All so far', 'range=7d&mode=running'],
  ])
    viewIds.push((await send('POST', `/api/apps/${full}/views`, { name, search })).viewId);
  await send('POST', `/api/apps/${full}/boards`, { name: 'Every morning', viewIds });
  await send('POST', `/api/apps/${full}/shares`, { viewId: viewIds[0], range: '7d', timezone: 'UTC' });
  await send('POST', `/api/apps/${full}/producers`, { name: 'checkout service' });
  await send('POST', `/api/apps/${full}/alerts`, {
    name: 'Many',
    rule: '{"of":"count","window":"5m","above":9}',
  });
  for (let by = null; by === null; ) ({ by } = await send('GET', `/api/apps/${full}/series?by=country`));
  await context.close();
  return { empty: empty.appId, little: little.appId, many: many.appId };
}
