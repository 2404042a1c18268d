/** Deadlines of tests. They end what hangs: no test is about them, and one that passes does not wait for them. */

/** CI=true says that other work shares the machine. */
const FACTOR = process.env.CI === 'true' ? 4 : 1;

/** A deadline of a test. @param ms on a machine that does nothing else */
export function patient(ms: number): number {
  return ms * FACTOR;
}
