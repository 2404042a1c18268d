/**
 * A model of a cluster: processes that gather commit groups for nodes, nodes that commit them, one Redis that decides limits. It shows
 * where many of them bend, which no machine of ours can. Its costs are measured ones (docs/scaling.md, docs/performance.md); it is
 * deterministic, and its table in docs/scaling.md is generated from it.
 */

export interface Model {
  readonly processes: number;
  readonly nodes: number;
  /** Events per second, each in a request of its own, spread evenly over apps, and apps over nodes. */
  readonly perSecond: number;
  /** COMMIT_CONNECTIONS of each process to each node. */
  readonly connections: number;
  /** How many processes get the requests of one app: all of them, or fewer where the load balancer keeps an app together. */
  readonly processesOfApp: number;
  /** Whether a process has a queue for each node, or one for all of them whose groups wait for every node in them. */
  readonly queues: 'per node' | 'shared';
  /** Whether one node falls silent in the middle. */
  readonly silentNode: boolean;
}

export interface Outcome {
  /** Connections of all processes to one node, for commits of now alone. */
  readonly connectionsOfNode: number;
  readonly eventsOfGroup: number;
  /** CPU of a node for an event, in microseconds. */
  readonly microsOfEvent: number;
  /** Share of the nodes' CPU that is used. */
  readonly nodeUse: number;
  /** The same of the processes' and of Redis'. Above 1 the load cannot be taken. */
  readonly processUse: number;
  readonly redisUse: number;
  /** Share of the events for nodes that answer that are committed as fast as they come. */
  readonly taken: number;
  /** Milliseconds from arrival to commit, of events for nodes that answer. */
  readonly p50: number;
  readonly p99: number;
}

/** CPU of a node in milliseconds: of a group, and of each event in it; and the wait for the disk, which takes no CPU. */
const GROUP_MS = 0.35;
const EVENT_MS = 0.0053;
const DISK_MS = 0.8;
/** Cores of a node for commits, beside reads and folding. */
const CORES = 4;
/** CPU of an event in a process, which has one core, and in Redis, which has one. */
const PROCESS_MS = 0.025;
const REDIS_MS = 0.003;
/** A silent node is given up after this. */
const SILENCE_MS = 3_000;
const MOST_EVENTS = 4_000;

const SLOT_MS = 0.25;
const WARM_UP_MS = 50;
const LENGTH_MS = 100;

interface Group {
  readonly queue: Queue;
  /** Arrivals in slots, one for each event. */
  readonly arrivals: readonly number[];
  /** Parts that are not committed yet. */
  parts: number;
}

interface Queue {
  waiting: number[];
  readonly node: number;
  /** Of each waiting event, in a shared queue. */
  readonly nodes: number[];
  inFlight: number;
}

interface Part {
  readonly group: Group;
  readonly events: number;
  workMs: number;
}

/** Park and Miller's generator (1988). */
function randomNumbers(): (below: number) => number {
  let state = 42;
  return (below) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
}

export function simulate(model: Model): Outcome {
  return new Simulation(model).run();
}

class Simulation {
  readonly #model: Model;
  readonly #random = randomNumbers();
  /** By process, then by node; a shared queue is that of node 0. */
  readonly #queues: Queue[][];
  /** What each node works on, in order. */
  readonly #work: Part[][];
  /** Parts whose commit ends in a slot. */
  readonly #ends = new Map<number, Part[]>();
  readonly #latencies: number[] = [];
  #slot = 0;
  #groups = 0;
  #events = 0;
  #cpuMs = 0;
  /** Events of nodes that answer: that have come, and that were committed. */
  #offered = 0;
  #committed = 0;

  constructor(model: Model) {
    this.#model = model;
    const { processes, nodes, queues } = model;
    this.#queues = Array.from({ length: processes }, () =>
      Array.from({ length: queues === 'per node' ? nodes : 1 }, (_, node) => ({
        ...{ waiting: [], node, nodes: [], inFlight: 0 },
      })),
    );
    this.#work = Array.from({ length: nodes }, () => []);
  }

  run(): Outcome {
    const { processes, nodes, perSecond, connections } = this.#model;
    let due = 0;
    for (; this.#slot * SLOT_MS < WARM_UP_MS + LENGTH_MS; this.#slot += 1) {
      due += (perSecond * SLOT_MS) / 1_000;
      for (; due >= 1; due -= 1) this.#arrive();
      for (const part of this.#ends.get(this.#slot) ?? []) this.#end(part);
      this.#ends.delete(this.#slot);
      for (const own of this.#queues) for (const queue of own) this.#send(queue);
      for (const [node, work] of this.#work.entries()) this.#commit(node, work);
    }
    this.#latencies.sort((a, b) => a - b);
    const percentile = (share: number): number =>
      this.#latencies[Math.floor(this.#latencies.length * share)] ?? Number.NaN;
    return {
      connectionsOfNode: processes * connections,
      eventsOfGroup: this.#events / this.#groups,
      microsOfEvent: (this.#cpuMs * 1_000) / this.#events,
      nodeUse: this.#cpuMs / (LENGTH_MS * CORES * nodes),
      processUse: (perSecond * PROCESS_MS) / 1_000 / processes,
      redisUse: (perSecond * REDIS_MS) / 1_000,
      taken: Math.min(1, this.#committed / this.#offered),
      p50: percentile(0.5),
      p99: percentile(0.99),
    };
  }

  get #isWarm(): boolean {
    return this.#slot * SLOT_MS >= WARM_UP_MS;
  }

  /** An event of a random app: its node, and one of the processes that get it. */
  #arrive(): void {
    const { processes, nodes, processesOfApp, queues } = this.#model;
    const app = this.#random(1_000_000);
    const node = app % nodes;
    // The processes of a node's apps are neighbors, so that each process has the apps of few nodes.
    const first = Math.floor((node * processes) / nodes);
    const process = (first + this.#random(processesOfApp)) % processes;
    const queue = this.#queues[process]?.[queues === 'per node' ? node : 0];
    queue?.waiting.push(this.#slot);
    if (this.#isWarm && !this.#isSilent(node)) this.#offered += 1;
    if (queues === 'shared') queue?.nodes.push(node);
  }

  #send(queue: Queue): void {
    const { connections, queues } = this.#model;
    while (queue.waiting.length > 0 && queue.inFlight < connections) {
      const arrivals = queue.waiting.splice(0, MOST_EVENTS);
      const byNode = new Map<number, number>();
      if (queues === 'shared')
        for (const node of queue.nodes.splice(0, MOST_EVENTS)) byNode.set(node, (byNode.get(node) ?? 0) + 1);
      else byNode.set(queue.node, arrivals.length);
      const group = { queue, arrivals, parts: byNode.size };
      queue.inFlight += 1;
      for (const [node, events] of byNode) {
        const workMs = GROUP_MS + EVENT_MS * events;
        this.#work[node]?.push({ group, events, workMs });
        if (!this.#isWarm || this.#isSilent(node)) continue;
        this.#groups += 1;
        this.#events += events;
      }
    }
  }

  /** A node does as much as its cores can in a slot, group by group. */
  #commit(node: number, work: Part[]): void {
    if (this.#isSilent(node)) {
      for (const part of work.splice(0)) this.#endLater(part, SILENCE_MS);
      return;
    }
    let room = SLOT_MS * CORES;
    let done = 0;
    for (const part of work) {
      const spent = Math.min(room, part.workMs);
      part.workMs -= spent;
      room -= spent;
      if (this.#isWarm) this.#cpuMs += spent;
      if (part.workMs > 0) break;
      done += 1;
      if (this.#isWarm) this.#committed += part.events;
      this.#endLater(part, DISK_MS);
    }
    work.splice(0, done);
  }

  #isSilent(node: number): boolean {
    return this.#model.silentNode && node === 0 && this.#isWarm;
  }

  #endLater(part: Part, ms: number): void {
    const slot = this.#slot + Math.ceil(ms / SLOT_MS);
    const parts = this.#ends.get(slot) ?? [];
    parts.push(part);
    this.#ends.set(slot, parts);
  }

  #end({ group }: Part): void {
    group.parts -= 1;
    if (group.parts > 0) return;
    group.queue.inFlight -= 1;
    if (!this.#isWarm) return;
    for (const arrival of group.arrivals) this.#latencies.push((this.#slot - arrival) * SLOT_MS);
  }
}

const MANY: Model = {
  processes: 100,
  nodes: 32,
  perSecond: 300_000,
  connections: 4,
  processesOfApp: 100,
  queues: 'per node',
  silentNode: false,
};

/** What the table shows. */
const ROWS: readonly (readonly [what: string, model: Model])[] = [
  ['4 processes, 1 node', { ...MANY, processes: 4, nodes: 1, perSecond: 20_000, processesOfApp: 4 }],
  ['4 processes, 4 nodes', { ...MANY, processes: 4, nodes: 4, perSecond: 80_000, processesOfApp: 4 }],
  ['100 processes, 32 nodes', { ...MANY, perSecond: 100_000 }],
  ['more requests', MANY],
  ['more than Redis takes', { ...MANY, perSecond: 1_000_000 }],
  ['… with `COMMIT_CONNECTIONS=1`', { ...MANY, perSecond: 1_000_000, connections: 1 }],
  ['… and each app on 4 processes', { ...MANY, perSecond: 1_000_000, connections: 1, processesOfApp: 4 }],
  ['one of 32 nodes silent', { ...MANY, silentNode: true }],
  ['… without a queue for each node', { ...MANY, silentNode: true, queues: 'shared' }],
];

/** The table of docs/scaling.md. */
export function modelTable(): string {
  const percent = (share: number): string => `${Math.round(share * 100)} %`;
  const rows = ROWS.map(([what, model]) => {
    const outcome = simulate(model);
    const cells = [
      what,
      model.perSecond.toLocaleString('en-US'),
      String(outcome.connectionsOfNode),
      outcome.eventsOfGroup.toFixed(1),
      outcome.microsOfEvent.toFixed(0),
      percent(outcome.nodeUse),
      percent(outcome.processUse),
      percent(outcome.redisUse),
      percent(outcome.taken),
      `${outcome.p50.toFixed(1)} / ${outcome.p99.toFixed(1)}`,
    ];
    return `| ${cells.join(' | ')} |`;
  });
  return [
    '| | Requests/s | Connections of a node | Events of a group | Node, µs an event | Nodes | Processes | Redis | Committed | p50 / p99, ms |',
    '|---|---|---|---|---|---|---|---|---|---|',
    ...rows,
  ].join('\n');
}
