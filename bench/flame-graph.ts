/** A CPU profile of V8 as a flame graph: one self-contained SVG, wider boxes for more time, callers below callees. */

/** What of a .cpuprofile is read here (Chrome DevTools Protocol, Profiler.Profile). */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
    readonly children?: readonly number[];
  }[];
  /** The node on top of the stack at each sample. */
  readonly samples: readonly number[];
  /** Microseconds since the sample before. */
  readonly timeDeltas: readonly number[];
}

/** One function on one path of calls; calls of the same function from the same path are one. */
export interface Frame {
  readonly name: string;
  /** Microseconds on top of the stack, and with everything it called. */
  self: number;
  total: number;
  readonly children: Map<string, Frame>;
}

/** What is no work: V8's own names for waiting. */
const IDLE = new Set(['(idle)', '(program)']);

function nameOf({ functionName, url, lineNumber }: CpuProfile['nodes'][number]['callFrame']): string {
  const name = functionName === '' ? '(anonymous)' : functionName;
  const file = url.split('/').slice(-2).join('/');
  return file === '' ? name : `${name} ${file}:${lineNumber + 1}`;
}

/** The profile's calls as one tree, without idle time. */
export function callTree(profile: CpuProfile): Frame {
  const selfTimes = new Map<number, number>();
  for (const [index, node] of profile.samples.entries()) {
    selfTimes.set(node, (selfTimes.get(node) ?? 0) + (profile.timeDeltas[index] ?? 0));
  }
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const add = (id: number, frame: Frame): void => {
    frame.self += selfTimes.get(id) ?? 0;
    for (const childId of nodes.get(id)?.children ?? []) {
      const child = nodes.get(childId);
      if (child === undefined || IDLE.has(child.callFrame.functionName)) continue;
      const name = nameOf(child.callFrame);
      const known = frame.children.get(name) ?? { name, self: 0, total: 0, children: new Map() };
      frame.children.set(name, known);
      add(childId, known);
    }
  };
  const root: Frame = { name: 'all', self: 0, total: 0, children: new Map() };
  const first = profile.nodes[0];
  if (first !== undefined) add(first.id, root);
  sumTotals(root);
  return root;
}

function sumTotals(frame: Frame): number {
  frame.total = frame.self;
  for (const child of frame.children.values()) frame.total += sumTotals(child);
  return frame.total;
}

/** The functions with the most time of their own, as shares of the busy time. */
export function heaviest(profile: CpuProfile, count: number): { name: string; share: number }[] {
  const root = callTree(profile);
  const selfTimes = new Map<string, number>();
  const visit = (frame: Frame): void => {
    selfTimes.set(frame.name, (selfTimes.get(frame.name) ?? 0) + frame.self);
    for (const child of frame.children.values()) visit(child);
  };
  visit(root);
  return [...selfTimes]
    .sort(([, a], [, b]) => b - a)
    .slice(0, count)
    .map(([name, self]) => ({ name, share: self / root.total }));
}

const WIDTH = 1_600;
const ROW = 17;
/** Narrower boxes are left out: nobody could see or hit them. */
const NARROWEST = 0.6;
const LETTER = 6.6;

/** Warm colours as everybody's flame graphs have them; the same function has the same one. */
function colour(name: string): string {
  let hash = 0;
  for (let index = 0; index < name.length; index += 1) hash = (hash * 31 + name.charCodeAt(index)) >>> 0;
  return `hsl(${10 + (hash % 45)},${70 + (hash % 20)}%,${58 + (hash % 12)}%)`;
}

function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

/** @returns the SVG's text; a box's tooltip has its name, milliseconds and share */
export function flameGraph(profile: CpuProfile, title: string): string {
  const root = callTree(profile);
  const boxes: string[] = [];
  let depthMost = 0;
  const draw = (frame: Frame, x: number, depth: number): void => {
    const width = (frame.total / root.total) * WIDTH;
    if (width < NARROWEST) return;
    depthMost = Math.max(depthMost, depth);
    const share = ((frame.total / root.total) * 100).toFixed(1);
    const tip = `${frame.name}: ${(frame.total / 1_000).toFixed(0)} ms, ${share} %, itself ${(frame.self / 1_000).toFixed(0)} ms`;
    const letters = Math.floor((width - 4) / LETTER);
    const label =
      letters < 3
        ? ''
        : `<text x="${(x + 2).toFixed(1)}" y="$Y${depth}$">${escapeXml(frame.name.slice(0, letters))}</text>`;
    boxes.push(
      `<g><title>${escapeXml(tip)}</title><rect x="${x.toFixed(1)}" y="$R${depth}$" width="${width.toFixed(1)}" height="${ROW - 1}" fill="${colour(frame.name)}"/>${label}</g>`,
    );
    let childX = x;
    const widest = [...frame.children.values()].sort((a, b) => b.total - a.total);
    for (const child of widest) {
      draw(child, childX, depth + 1);
      childX += (child.total / root.total) * WIDTH;
    }
  };
  draw(root, 0, 0);
  const height = (depthMost + 3) * ROW;
  // The deepest row is only known now: rows are counted from the bottom.
  const body = boxes
    .join('\n')
    .replace(/\$R(\d+)\$/g, (_, depth) => String(height - (Number(depth) + 1) * ROW - 4))
    .replace(/\$Y(\d+)\$/g, (_, depth) => String(height - Number(depth) * ROW - 9));
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="monospace" font-size="11">\n` +
    `<text x="4" y="14" font-size="13">${escapeXml(title)}, ${(root.total / 1e6).toFixed(1)} s of busy time</text>\n${body}\n</svg>\n`
  );
}
