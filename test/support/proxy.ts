/** A TCP proxy in front of PostgreSQL that loses connections, answers and time on demand. */
import { once } from 'node:events';
import { connect, createServer, type NetConnectOpts, type Server, type Socket } from 'node:net';
import type { DatabaseAddress } from '../../src/storage/database/connect.ts';

/** What becomes of bytes that a client sends. */
export type Fate =
  | 'forward'
  /** The connection breaks before PostgreSQL has seen them. */
  | 'lose-request'
  /** The connection breaks when half of them have gone through: in the middle of the rows or of the commit. */
  | 'cut-request'
  /** PostgreSQL does what they ask, to the end, and the connection breaks before the client hears of it. */
  | 'lose-answer'
  /** The same, but the client hears all of the answer except its very end, that PostgreSQL is ready for another query. */
  | 'lose-ready'
  /** PostgreSQL does what they ask; the answer waits for {@link FaultyProxy.release}. */
  | 'hold-answer'
  /** Nothing comes back, and nothing breaks. */
  | 'black-hole';

interface Pair {
  /** The client's application_name, once it has said it. */
  name: string;
  readonly client: Socket;
  readonly server: Socket;
  fate: Fate;
  held: Buffer[];
}

/** ReadyForQuery, PostgreSQL's last message of every answer, without its one byte of transaction status. */
const READY_FOR_QUERY = Buffer.from([0x5a, 0, 0, 0, 5]);

export class FaultyProxy {
  #target: NetConnectOpts;
  readonly #origin: DatabaseAddress;
  readonly #pairs = new Set<Pair>();
  #server: Server;
  #port = 0;

  /** Asked for everything that a client sends; the bytes are one or more messages of PostgreSQL's protocol. */
  decide: (sent: Buffer) => Fate = () => 'forward';

  /** Told everything that a client sends, whatever becomes of it, with the name of its connection. */
  onSent: (sent: Buffer, name: string) => void = () => undefined;

  /** Told everything that PostgreSQL sends. */
  onAnswer: (answer: Buffer) => void = () => undefined;

  /** Milliseconds that everything takes longer, each way. */
  delayMs = 0;
  #swallowing = false;

  private constructor(address: DatabaseAddress) {
    this.#target = targetOf(address);
    this.#origin = address;
    this.#server = this.#makeServer();
  }

  static async start(address: DatabaseAddress): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(address);
    await proxy.#listen(0);
    return proxy;
  }

  /** How to reach the database through the proxy. */
  get address(): DatabaseAddress {
    const [host, port] = ['127.0.0.1', this.#port];
    if (!('url' in this.#origin)) return { ...this.#origin, host, port };
    const url = new URL(this.#origin.url);
    url.host = `${host}:${port}`;
    return { url: url.href };
  }

  /** The next `times` of what matches meet this fate; everything else goes through. @returns how often it happened */
  next(matches: (sent: Buffer) => boolean, fate: Fate, times = 1): () => number {
    let met = 0;
    this.decide = (sent) => {
      if (met >= times || !matches(sent)) return 'forward';
      met += 1;
      return fate;
    };
    return () => met;
  }

  /** Breaks every connection and refuses new ones, as a host without PostgreSQL does. */
  async goAway(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const pair of this.#pairs) this.#break(pair);
    await closed;
  }

  /** Ends {@link goAway}. */
  async comeBack(): Promise<void> {
    this.#server = this.#makeServer();
    await this.#listen(this.#port);
  }

  /** New connections lead to another server, as after a failover; those that there are stay where they are. */
  leadTo(address: DatabaseAddress): void {
    this.#target = targetOf(address);
  }

  /**
   * From now on nothing comes through on connections with such an application_name, and nothing breaks; on those that are
   * made later everything does. @returns how many are silent
   */
  silence(matches: (applicationName: string) => boolean): number {
    const silent = [...this.#pairs].filter(({ name }) => matches(name));
    for (const pair of silent) pair.fate = 'black-hole';
    return silent.length;
  }

  /** Connections that are silent and that the client has not closed. */
  get silentConnections(): number {
    return [...this.#pairs].filter(({ fate }) => fate === 'black-hole').length;
  }

  /** From now on nothing comes through on any connection, and nothing breaks: a network that drops every packet. */
  swallow(): void {
    this.#swallowing = true;
  }

  /**
   * Ends {@link swallow}. What was sent meanwhile stays lost, so the connections of that time stay silent.
   */
  stopSwallowing(): void {
    this.#swallowing = false;
  }

  /** Lets the held answers go, and holds no more. */
  release(): void {
    this.decide = () => 'forward';
    for (const pair of this.#pairs) {
      if (pair.fate !== 'hold-answer') continue;
      pair.fate = 'forward';
      for (const bytes of pair.held.splice(0)) pair.client.write(bytes);
    }
  }

  /** Connections now. */
  get connections(): number {
    return this.#pairs.size;
  }

  async stop(): Promise<void> {
    if (this.#server.listening) await this.goAway();
  }

  #makeServer(): Server {
    return createServer({ noDelay: true }, (client) => this.#join(client));
  }

  async #listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening');
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no TCP port');
    this.#port = address.port;
  }

  #join(client: Socket): void {
    const server = connect(this.#target);
    const pair: Pair = { name: '', client, server, fate: 'forward', held: [] };
    this.#pairs.add(pair);
    client.on('data', (sent) => this.#later(() => this.#fromClient(pair, sent)));
    server.on('data', (answer) => this.#later(() => this.#fromServer(pair, answer)));
    for (const socket of [client, server]) socket.on('error', () => undefined); // 'close' follows.
    client.on('close', () => this.#break(pair));
    server.on('close', () => {
      if (pair.fate !== 'black-hole') this.#break(pair);
    });
  }

  /** Timers of one length fire in their order, so the bytes stay in theirs. */
  #later(work: () => void): void {
    if (this.delayMs === 0) work();
    else setTimeout(work, this.delayMs);
  }

  #fromClient(pair: Pair, sent: Buffer): void {
    if (pair.name === '') pair.name = applicationName(sent);
    this.onSent(sent, pair.name);
    if (this.#swallowing) pair.fate = 'black-hole';
    if (pair.fate === 'black-hole') return;
    if (pair.fate === 'forward') pair.fate = this.decide(sent);
    if (pair.fate === 'lose-request') this.#break(pair);
    else if (pair.fate === 'cut-request')
      pair.server.write(sent.subarray(0, sent.length >> 1), () => this.#break(pair));
    else if (pair.fate !== 'black-hole') pair.server.write(sent);
  }

  #fromServer(pair: Pair, answer: Buffer): void {
    this.onAnswer(answer);
    if (this.#swallowing) pair.fate = 'black-hole';
    if (pair.fate === 'black-hole') return;
    if (pair.fate === 'hold-answer') pair.held.push(answer);
    else if (pair.fate !== 'lose-answer' && pair.fate !== 'lose-ready') pair.client.write(answer);
    else if (answer.subarray(-6, -1).equals(READY_FOR_QUERY)) {
      if (pair.fate === 'lose-answer') this.#break(pair);
      else pair.client.write(answer.subarray(0, -6), () => this.#break(pair));
    } else if (pair.fate === 'lose-ready') pair.client.write(answer);
  }

  #break(pair: Pair): void {
    pair.client.destroy();
    pair.server.destroy();
    this.#pairs.delete(pair);
  }
}

/** By the Unix socket, or by TCP to a server that the tests have not started. */
function targetOf(address: DatabaseAddress): NetConnectOpts {
  if (!('url' in address)) return { path: `${address.host}/.s.PGSQL.${address.port}` };
  const { hostname, port } = new URL(address.url);
  return { host: hostname, port: Number(port || 5432) };
}

/** What a client calls itself in its first message. */
function applicationName(start: Buffer): string {
  const fields = start.toString('latin1').split('\0');
  return fields[fields.indexOf('application_name') + 1] ?? '';
}

/** Whether bytes to PostgreSQL are a batch of events on its way into the table. */
export function isBatch(sent: Buffer): boolean {
  return isCopy(sent) || sent.includes('INSERT INTO events ');
}

/** Whether they are a COPY of events. */
export function isCopy(sent: Buffer): boolean {
  return sent.includes('COPY events ');
}
