/**
 * Codecs of PostgreSQL's array types. Without them the client queries the catalog on each new connection, and if that query
 * fails (lock, timeout, cancel), the rejection reaches no caller and the connection continues without array support. The
 * object ids of built-in types are the same in every PostgreSQL.
 */

import type postgres from 'postgres';
import type { PostgresType } from 'postgres';
import { parse } from 'postgres-array';

/** Converts values of one type from and to PostgreSQL's text format. */
interface Codec {
  readonly read: (text: string) => unknown;
  readonly write: (value: unknown) => string;
}

const TEXT: Codec = { read: (text) => text, write: String };
const NUMBER: Codec = { read: Number, write: String };
const BOOLEAN: Codec = { read: (text) => text === 't', write: (value) => (value === true ? 't' : 'f') };
const TIME: Codec = {
  read: (text) => new Date(text),
  write: (value) => (value instanceof Date ? value.toISOString() : String(value)),
};
const JSON_TEXT: Codec = { read: (text) => JSON.parse(text), write: (value) => JSON.stringify(value) };
const BYTES: Codec = {
  read: (text) => Buffer.from(text.slice(2), 'hex'),
  // The only format that the client supports for bytea.
  write: (value) => `\\x${Buffer.from(value as Uint8Array).toString('hex')}`,
};

const BYTES_ARRAY = 1001;

/** The object id of each array type (pg_type.dat), and the codec of its elements: the same as the client's for scalars. */
const ARRAY_TYPES: Readonly<Record<string, readonly [oid: number, element: Codec]>> = {
  bool: [1000, BOOLEAN],
  bytea: [BYTES_ARRAY, BYTES],
  name: [1003, TEXT],
  int2: [1005, NUMBER],
  int4: [1007, NUMBER],
  text: [1009, TEXT],
  xid: [1011, TEXT],
  varchar: [1015, TEXT],
  int8: [1016, TEXT],
  float4: [1021, NUMBER],
  float8: [1022, NUMBER],
  oid: [1028, NUMBER],
  timestamp: [1115, TIME],
  date: [1182, TIME],
  timestamptz: [1185, TIME],
  numeric: [1231, TEXT],
  json: [199, JSON_TEXT],
  jsonb: [3807, JSON_TEXT],
  uuid: [2951, TEXT],
};

/** Bytes as an array parameter: the client takes an array that begins with bytes for bytes. */
export function bytesArray(
  sql: postgres.Sql | postgres.TransactionSql,
  values: readonly (Uint8Array | null)[],
) {
  return sql.typed([...values] as never, BYTES_ARRAY);
}

/** The client's option `types`. */
export const ARRAYS: Readonly<Record<string, PostgresType>> = Object.fromEntries(
  Object.entries(ARRAY_TYPES).map(([name, [oid, element]]): [string, PostgresType] => [
    `${name}_array`,
    {
      to: oid,
      from: [oid],
      parse: (text: string) => parse(text, element.read),
      serialize: (value: unknown) => (Array.isArray(value) ? arrayText(value, element) : value),
    },
  ]),
);

function arrayText(values: readonly unknown[], element: Codec): string {
  const texts = values.map((value) => {
    if (value === null) return 'NULL';
    return Array.isArray(value) ? arrayText(value, element) : quoted(element.write(value));
  });
  return `{${texts.join(',')}}`;
}

function quoted(text: string): string {
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}
