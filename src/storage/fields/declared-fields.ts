/** The declared fields of all apps, as a process that writes knows them. */
import type { Sql } from '../database/connect.ts';
import { PayloadValues } from './payload-values.ts';

/** `value`: events are counted by the field's values. `number`: statistics of its numbers are kept. */
export type FieldKind = 'value' | 'number';

export interface DeclaredField {
  /** Internal id. */
  readonly id: number;
  /** Internal id of the type whose events have it; null: events of all types. */
  readonly typeId: number | null;
  /** Names from the payload's top on. */
  readonly path: readonly string[];
  readonly kind: FieldKind;
}

/** The fields of an app. */
export interface AppFields {
  readonly fields: readonly DeclaredField[];
  /** Reads the value, or the number, of each of them, in their order. */
  readonly values: PayloadValues;
}

interface FieldRow {
  readonly generation: number;
  readonly appId: number | null;
  readonly id: number;
  readonly typeId: number | null;
  readonly path: string;
  readonly kind: FieldKind;
}

/**
 * What this process knows of declared fields. It need not be up to date: whatever it writes says which generation of fields
 * it knew, and what newer fields lack of that is counted from rows (sql/0003).
 */
export class DeclaredFields {
  #generation = 0;
  #apps: ReadonlyMap<number, AppFields> = new Map();
  #loading: Promise<void> | null = null;
  #again = false;

  /** All fields up to this generation are known; 0: none. */
  get generation(): number {
    return this.#generation;
  }

  /** @param appId internal id */
  of(appId: number): AppFields | undefined {
    return this.#apps.get(appId);
  }

  /** Reads what is declared now. Calls during a load share the one that follows it. */
  async load(sql: Sql): Promise<void> {
    if (this.#loading !== null) {
      this.#again = true;
      return await this.#loading;
    }
    this.#loading = this.#loadUntilCurrent(sql).finally(() => {
      this.#loading = null;
    });
    await this.#loading;
  }

  /** Forgets all fields: the database may be another one. */
  forget(): void {
    this.#generation = 0;
    this.#apps = new Map();
  }

  async #loadUntilCurrent(sql: Sql): Promise<void> {
    do {
      this.#again = false;
      const { generation, apps } = await readFields(sql);
      this.#generation = generation;
      this.#apps = apps;
    } while (this.#again);
  }
}

/** One statement, so that generation and fields are of one snapshot. */
async function readFields(
  sql: Sql,
): Promise<{ readonly generation: number; readonly apps: ReadonlyMap<number, AppFields> }> {
  const rows = await sql<FieldRow[]>`
    SELECT generation, app_id AS "appId", id, type_id AS "typeId", path, kind
      FROM field_generation LEFT JOIN written_fields ON true
     ORDER BY id`;
  const fields = new Map<number, DeclaredField[]>();
  for (const { appId, id, typeId, path, kind } of rows) {
    if (appId === null) continue;
    const ofApp = fields.get(appId) ?? [];
    ofApp.push({ id, typeId, path: namesOf(path), kind });
    fields.set(appId, ofApp);
  }
  const apps = [...fields].map(([appId, ofApp]) => [appId, appFields(ofApp)] as const);
  return { generation: rows[0]?.generation ?? 0, apps: new Map(apps) };
}

export function appFields(fields: readonly DeclaredField[]): AppFields {
  const [paths, kinds] = [fields.map(({ path }) => path), fields.map(({ kind }) => kind)];
  return { fields, values: new PayloadValues(paths, kinds) };
}

/** The names of a path as the database has it. */
export function namesOf(path: string): readonly string[] {
  return JSON.parse(path) as string[];
}
