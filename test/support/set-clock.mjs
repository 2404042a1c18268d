/**
 * Loaded into a process and what it starts by NODE_OPTIONS=--import: SET_CLOCK names a file with the milliseconds by which somebody has
 * set the clock. What counts time without a date is right.
 */
import { readFileSync } from 'node:fs';

const { now } = Date;
let [ahead, readAt] = [0, Number.NEGATIVE_INFINITY];

Date.now = () => {
  if (performance.now() - readAt > 20) {
    ahead = Number(readFileSync(process.env.SET_CLOCK, 'utf8'));
    readAt = performance.now();
  }
  return now() + ahead;
};

globalThis.Date = new Proxy(Date, {
  construct: (target, given, self) =>
    Reflect.construct(target, given.length === 0 ? [Date.now()] : given, self),
});
