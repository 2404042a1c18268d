/** What processes have used, from /proc. Where there is none, every figure is NaN and nothing is judged by it. */
import { readFileSync } from 'node:fs';

/** USER_HZ, which Linux fixes at 100 for all that /proc shows. */
const MS_PER_TICK = 10;

interface Times {
  /** Milliseconds of user and system time. */
  readonly own: number;
  /** The same of children that have ended. */
  readonly ended: number;
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function timesOf(pid: number): Times {
  const stat = read(`/proc/${pid}/stat`);
  // The second field is the command's name in parentheses, with anything in it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = (first: number): number => (Number(fields[first]) + Number(fields[first + 1])) * MS_PER_TICK;
  return stat === '' ? { own: Number.NaN, ended: Number.NaN } : { own: ticks(11), ended: ticks(13) };
}

/** CPU time of one process with all of its threads, in milliseconds. */
export function cpuOf(pid: number): number {
  return timesOf(pid).own;
}

/**
 * CPU time of a process and of all children that it has or had, in milliseconds: for PostgreSQL, whose work is done by
 * children of the postmaster that come and go.
 */
export function cpuOfFamily(pid: number): number {
  const { own, ended } = timesOf(pid);
  const children = read(`/proc/${pid}/task/${pid}/children`).match(/\d+/g) ?? [];
  // One that ended since the list was read is in neither sum this time; it was idle, or it would still be there.
  const alive = children.map((child) => timesOf(Number(child)).own).filter((ms) => !Number.isNaN(ms));
  return own + ended + alive.reduce((sum, ms) => sum + ms, 0);
}

export interface Memory {
  /** Megabytes (10^6) resident now, and at most so far. */
  readonly resident: number;
  readonly highWater: number;
}

export function memoryOf(pid: number): Memory {
  const status = read(`/proc/${pid}/status`);
  const megabytes = (field: string): number =>
    (Number(new RegExp(`^${field}:\\s*(\\d+) kB`, 'm').exec(status)?.[1] ?? Number.NaN) * 1_024) / 1e6;
  return { resident: megabytes('VmRSS'), highWater: megabytes('VmHWM') };
}

/** Starts to measure. @returns the share of all CPU time since then that the hypervisor gave to other machines; NaN if unknown */
export function stolenSince(): () => number {
  const before = cpuTicks();
  return () => {
    const after = cpuTicks();
    return (after.stolen - before.stolen) / (after.all - before.all);
  };
}

/** Of all processors since the start of the machine. */
function cpuTicks(): { readonly stolen: number; readonly all: number } {
  const [, ...ticks] = (read('/proc/stat').split('\n', 1)[0] ?? '').split(/ +/).map(Number);
  // user nice system idle iowait irq softirq steal; the rest is counted in the first two already.
  const counted = ticks.slice(0, 8);
  return { stolen: counted[7] ?? Number.NaN, all: counted.reduce((sum, one) => sum + one, 0) };
}
