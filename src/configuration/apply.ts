/** Shows an installation's configuration as a document, and makes an installation as a document says. */
import type { Actor } from '../accounts/log/audit.ts';
import { createSecretText } from '../accounts/sessions/one-time-secret.ts';
import type { Passwords } from '../accounts/sign-in/passwords.ts';
import type { Secret } from '../apps/secret.ts';
import type { Config } from '../config.ts';
import { latenessWarnings } from '../delivery/alerts/lateness.ts';
import { parseRule } from '../delivery/alerts/rule.ts';
import { checkedWebhook } from '../delivery/webhooks.ts';
import { OperatorError, refused } from '../errors.ts';
import { readSchemaText, SchemaProver } from '../schema/schema-text.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import type { ConsumerStore } from '../storage/feed/consumers.ts';
import { hasEvents } from '../storage/fields/progress.ts';
import type { EventReader } from '../storage/read/event-reader.ts';
import type { ConfigDocument, WebhookEntry } from './document.ts';
import type { ParsedConfig } from './parse.ts';
import { type Plan, planConfig } from './plan.ts';
import { documentOf, readState } from './state.ts';
import type { Change, Kept, Step, StepContext } from './steps.ts';

export interface ConfigurationOptions {
  /** A pool of one connection: a lock of its session keeps two from applying at once. */
  readonly sql: Sql;
  readonly store: ConsumerStore;
  readonly events: Pick<EventReader, 'typeActivity'>;
  readonly secret: () => Promise<Secret>;
  readonly config: StepContext['config'] & Pick<Config, 'MAX_BODY_BYTES'>;
  readonly passwords: Passwords;
  readonly by: Actor;
}

export interface ApplyOptions {
  readonly dryRun: boolean;
  readonly prune: boolean;
  readonly deleteEvents: boolean;
  /** Gets the plan before the first change. */
  readonly onPlan?: (plan: Applied) => void;
}

/** What was changed, or would be. */
export interface Applied {
  readonly changes: readonly Change[];
  readonly kept: readonly Kept[];
  /** Alerts of the plan that are judged before their late events are there. */
  readonly warnings: readonly AlertWarning[];
}

export interface AlertWarning {
  readonly app: string;
  readonly alert: string;
  readonly warning: string;
}

/** A step that failed, after others that were done. */
export class ApplyFailure extends OperatorError {
  /** In order. */
  readonly done: readonly Change[];
  readonly failed: Change;

  constructor(done: readonly Change[], failed: Change, total: number, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const before =
      done.length === 0 ? 'nothing was changed' : `done before it: ${done.map(changeText).join('; ')}`;
    super(
      `${changeText(failed)} failed: ${reason} (${done.length} of ${total} changes were made, and stay; ${before}; ` +
        'apply the document again once the cause is gone)',
      { cause },
    );
    this.done = done;
    this.failed = failed;
  }
}

/** Any number; held by the session that applies. */
const APPLY_LOCK = 7_311_208_044;

/**
 * The document of the installation, or of one app.
 * @param appId public id; null: all
 * @returns null if there is no such app
 */
export async function showConfig(
  { sql, store }: Pick<ConfigurationOptions, 'sql' | 'store'>,
  appId: string | null,
): Promise<ConfigDocument | null> {
  return documentOf(await readState(sql, store), appId);
}

/**
 * Makes the installation as the document says, app by app, each in one transaction; webhooks, and what is removed, come after it.
 * @throws ConfigMistake before any change; ApplyFailure where a step fails; Refused unavailable while another one applies
 */
export async function applyConfig(
  options: ConfigurationOptions,
  parsed: ParsedConfig,
  { dryRun, prune, deleteEvents, onPlan }: ApplyOptions,
): Promise<Applied> {
  const { sql } = options;
  const [lock] = await sql<{ held: boolean }[]>`SELECT pg_try_advisory_lock(${APPLY_LOCK}) AS held`;
  if (lock?.held !== true)
    throw refused('unavailable', 'another configuration is being applied: try again when it is done');
  try {
    const plan = await planOf(options, parsed, { prune, deleteEvents });
    await proveSchemas(parsed, plan.steps);
    const changes = plan.steps.flatMap((one) => one.changes);
    const applied = { changes, kept: plan.kept, warnings: await warningsOf(options, plan.steps) };
    onPlan?.(applied);
    if (!dryRun && plan.steps.length > 0) await run(options, plan);
    return applied;
  } finally {
    await sql`SELECT pg_advisory_unlock(${APPLY_LOCK})`;
  }
}

async function warningsOf(
  place: ConfigurationOptions,
  steps: readonly Step[],
): Promise<readonly AlertWarning[]> {
  const warnings: AlertWarning[] = [];
  for (const { rule, changes } of steps) {
    // No events have come of an app that is not made yet.
    if (rule === undefined || rule.app.id === null) continue;
    const [warning = null] = await latenessWarnings(place, rule.app.id, [parseRule(rule.text)], Date.now());
    const [change] = changes;
    if (warning !== null && change !== undefined)
      warnings.push({ app: rule.app.name, alert: change.name, warning });
  }
  return warnings;
}

async function planOf(
  { sql, store, config }: ConfigurationOptions,
  parsed: ParsedConfig,
  given: Pick<ApplyOptions, 'prune' | 'deleteEvents'>,
): Promise<Plan> {
  const state = await readState(sql, store);
  const rows = await sql<{ key: string; verified: boolean }[]>`
    SELECT email_key AS key, email_verified_at IS NOT NULL AS verified FROM users`;
  return await planConfig(parsed, state, {
    ...given,
    accounts: new Map(rows.map(({ key, verified }) => [key, verified])),
    hasEvents: (appId) => hasEvents(sql, appId),
    webhookProblem: (webhook) => webhookProblem(webhook, config.WEBHOOK_ALLOW_PRIVATE),
    sendsMail: config.SMTP_URL !== '',
  });
}

function webhookProblem(webhook: WebhookEntry, allowPrivate: boolean): string | null {
  try {
    checkedWebhook(webhook, allowPrivate);
    return null;
  } catch (error) {
    if (error instanceof OperatorError) return `is refused: ${error.message}`;
    throw error;
  }
}

async function run(options: ConfigurationOptions, { steps }: Plan): Promise<void> {
  const needsHash = steps.some(({ changes }) => changes.some(({ kind }) => kind === 'account'));
  // Slow, and the same for all accounts: nobody knows the password.
  const hash = needsHash ? await options.passwords.hash(createSecretText().text) : '';
  const context: StepContext = {
    ...options,
    secret: await options.secret(),
    // They were verified before the first change.
    prover: { prove: async () => null },
    unusableHash: async () => hash,
  };
  const total = steps.reduce((sum, { changes }) => sum + changes.length, 0);
  const done: Change[] = [];
  for (const together of groupsOf(steps)) {
    let failing: Step | undefined = together[0];
    const work = async (sql: Sql): Promise<void> => {
      for (const step of together) {
        failing = step;
        await step.run({ ...context, sql });
      }
    };
    try {
      if (failing?.isAlone === true) await work(options.sql);
      else await options.sql.begin('isolation level read committed', (tx) => work(joined(tx)));
    } catch (error) {
      const [change] = failing?.changes ?? [];
      if (change === undefined) throw error;
      throw new ApplyFailure(done, change, total, error);
    }
    done.push(...together.flatMap(({ changes }) => changes));
  }
}

/** The steps of an app that follow each other are one transaction: there are all of them or none. */
function groupsOf(steps: readonly Step[]): readonly (readonly Step[])[] {
  const groups: Step[][] = [];
  let before: string | null = null;
  for (const step of steps) {
    const app = step.changes[0]?.app ?? null;
    const isApp = step.changes[0]?.kind === 'app';
    const group = groups.at(-1);
    const joins =
      step.isAlone !== true && group?.[0]?.isAlone !== true && !isApp && (app === before || app === null);
    if (group !== undefined && joins) group.push(step);
    else groups.push([step]);
    if (app !== null || isApp) before = app ?? step.changes[0]?.name ?? null;
  }
  return groups;
}

/** A transaction in the place of a pool, for functions that begin one of their own: what they do is part of it. */
function joined(tx: Transaction): Sql {
  type Work = (tx: Transaction) => Promise<unknown>;
  return new Proxy(tx, {
    get: (target, name) =>
      name === 'begin'
        ? (first: string | Work, second?: Work) => (typeof first === 'string' ? second : first)?.(tx)
        : Reflect.get(target, name),
    // A transaction has all that statements need; the functions of steps use nothing else of a pool.
  }) as unknown as Sql;
}

/** Schemas that are compiled at once: as many as may wait. */
const PROOFS_AT_ONCE = 10;

/** Compiles the schemas of the plan: all of them, before anything is changed. @throws ConfigMistake */
async function proveSchemas(parsed: ParsedConfig, steps: readonly Step[]): Promise<void> {
  const left = steps.filter(({ schema }) => schema !== undefined);
  const prover = new SchemaProver();
  try {
    while (left.length > 0)
      await Promise.all(
        left.splice(0, PROOFS_AT_ONCE).map(async ({ schema, changes }, place) => {
          const read = readSchemaText(schema);
          const problem = typeof read === 'string' ? read : await prover.prove(read, String(place));
          const [change] = changes;
          if (problem !== null && change !== undefined) throw schemaMistake(parsed, change, problem);
        }),
      );
  } finally {
    await prover.close();
  }
}

function schemaMistake(parsed: ParsedConfig, { app, name }: Change, problem: string): Error {
  const apps = parsed.document.apps ?? [];
  const at = apps.findIndex((one) => one.name === app && one.types?.some((type) => type.name === name));
  const type = apps[at]?.types?.findIndex((one) => one.name === name) ?? 0;
  return parsed.mistake(['apps', at, 'types', type, 'schema'], problem);
}

const SIGNS = { create: '+', update: '~', remove: '-' } as const;

/** A change in one line. */
export function changeText({ action, kind, app, name, detail }: Change): string {
  const where = app === null ? '' : ` in ${JSON.stringify(app)}`;
  const what = detail === undefined ? '' : ` (${detail})`;
  return `${SIGNS[action]} ${kind} ${JSON.stringify(name)}${where}${what}`;
}
