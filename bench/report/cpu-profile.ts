/** A CPU profile of V8, read for a table of functions. The file itself opens in the developer tools of any browser. */

/** The part of a .cpuprofile that is read here (Chrome DevTools Protocol, Profiler.Profile). */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  }[];
  /** The node on top of the stack at each sample. */
  readonly samples: readonly number[];
  /** Microseconds since the sample before. */
  readonly timeDeltas: readonly number[];
}

/** V8's names for waiting. */
const IDLE = new Set(['(idle)', '(program)']);

function nameOf({ functionName, url, lineNumber }: CpuProfile['nodes'][number]['callFrame']): string {
  const name = functionName === '' ? '(anonymous)' : functionName;
  const file = url.split('/').slice(-2).join('/');
  return file === '' ? name : `${name} ${file}:${lineNumber + 1}`;
}

/** The functions with the most time of their own, as shares of the busy time. */
export function heaviest(profile: CpuProfile, count: number): { name: string; share: number }[] {
  const frames = new Map(profile.nodes.map(({ id, callFrame }) => [id, callFrame]));
  const selfTimes = new Map<string, number>();
  let busy = 0;
  for (const [index, node] of profile.samples.entries()) {
    const frame = frames.get(node);
    if (frame === undefined || IDLE.has(frame.functionName)) continue;
    const micros = profile.timeDeltas[index] ?? 0;
    const name = nameOf(frame);
    selfTimes.set(name, (selfTimes.get(name) ?? 0) + micros);
    busy += micros;
  }
  return [...selfTimes]
    .sort(([, a], [, b]) => b - a)
    .slice(0, count)
    .map(([name, micros]) => ({ name, share: micros / busy }));
}
