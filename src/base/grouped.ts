/** Lists of rows that have the same key, in the order of their first ones. `Map.groupBy` needs Node 21. */
export function grouped<Row, Key>(rows: readonly Row[], keyOf: (row: Row) => Key): Map<Key, Row[]> {
  const groups = new Map<Key, Row[]>();
  for (const row of rows) {
    const key = keyOf(row);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  return groups;
}

/** Rows of many owners in one statement, by the column that names the owner and without it. */
export function groupedBy<Row, Name extends keyof Row>(
  rows: readonly Row[],
  name: Name,
): ReadonlyMap<Row[Name], readonly Omit<Row, Name>[]> {
  const groups = grouped(rows, (row) => row[name]);
  return new Map([...groups].map(([key, group]) => [key, group.map(({ [name]: _, ...row }) => row)]));
}
