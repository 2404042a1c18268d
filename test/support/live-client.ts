/** A reader of the live feed: server-sent events as the standard has a browser parse them, without its politeness. */
import { once } from 'node:events';
import { type ClientRequest, get, type IncomingMessage } from 'node:http';
import { checkMessage } from './described.ts';
import { until } from './service.ts';

/** A message as a client has it. */
export interface Message {
  readonly event: string;
  readonly data: string;
  /** The last event id when it came. */
  readonly id: string;
}

export interface LiveEvent {
  readonly id: string;
  readonly typeId: string;
  readonly createdAt: string;
  readonly payload?: unknown;
  readonly payloadBytes?: number;
}

export interface LiveData {
  readonly events: readonly LiveEvent[];
  readonly counts: readonly { readonly typeId: string; readonly minute: string; readonly count: number }[];
  readonly skipped: number;
}

/** With a session, or with a resource token. */
type LiveRequest = ({ readonly cookie: string } | { readonly token: string }) & {
  readonly lastEventId?: string;
  readonly query?: string;
};

export class LiveClient {
  readonly #request: ClientRequest;
  readonly response: IncomingMessage;
  readonly messages: Message[] = [];
  comments = 0;
  lastEventId = '';
  isOver = false;
  #text = '';
  #event = '';
  #data: string[] = [];
  /** That of the message which is coming; null where it has none. */
  #id: string | null = null;
  /** The feed of a session ends for a reason more than that of a token, which the API's description has. */
  readonly #isOfSession: boolean;

  private constructor(request: ClientRequest, response: IncomingMessage, isOfSession: boolean) {
    this.#request = request;
    this.#isOfSession = isOfSession;
    this.response = response;
    response.setEncoding('utf8');
    response.on('data', (text: string) => this.#take(text));
    const end = (): void => {
      this.isOver = true;
    };
    response.on('end', end);
    response.on('close', end);
    response.on('error', () => undefined); // 'close' follows.
  }

  /** Asks for a feed; `response.statusCode` says whether it is one. */
  static async open(
    port: number,
    appId: string,
    { lastEventId = '', query = '', ...who }: LiveRequest,
  ): Promise<LiveClient> {
    const request = get({
      port,
      host: '127.0.0.1',
      path: `/${'cookie' in who ? 'api' : 'v1'}/apps/${appId}/live${query}`,
      agent: false,
      headers: {
        ...('cookie' in who ? { Cookie: who.cookie } : { Authorization: `Bearer ${who.token}` }),
        ...(lastEventId !== '' && { 'Last-Event-ID': lastEventId }),
      },
    });
    request.on('error', () => undefined); // After the answer's head: 'close' of the response says the same.
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    const client = new LiveClient(request, response, 'cookie' in who);
    client.lastEventId = lastEventId;
    return client;
  }

  /** A feed that has said where it stands. */
  static async follow(...given: Parameters<typeof LiveClient.open>): Promise<LiveClient> {
    const client = await LiveClient.open(...given);
    await until(() => client.messages.length > 0, 'the feed says where it stands');
    return client;
  }

  get events(): readonly LiveEvent[] {
    return this.data.flatMap(({ events }) => events);
  }

  get data(): readonly LiveData[] {
    return this.messages.filter(({ event }) => event === 'events').map(({ data }) => JSON.parse(data));
  }

  /** The body of an answer that is no feed: a line without an end. */
  get refusal(): string {
    return this.#text;
  }

  has(event: string): boolean {
    return this.messages.some((message) => message.event === event);
  }

  close(): void {
    this.#request.destroy();
  }

  /** The standard's line-by-line parsing; here lines end with a line feed alone, and a carriage return would be one more. */
  #take(text: string): void {
    this.#text += text;
    const lines = this.#text.split(/\r\n|\r|\n/);
    this.#text = lines.pop() ?? '';
    for (const line of lines) this.#takeLine(line);
  }

  #takeLine(line: string): void {
    if (line === '') {
      if (this.#data.length > 0) this.#dispatch();
      this.#event = '';
      this.#data = [];
      this.#id = null;
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === '') this.comments += 1;
    else if (field === 'event') this.#event = value;
    else if (field === 'data') this.#data.push(value);
    else if (field === 'id') this.lastEventId = this.#id = value;
    else if (field !== 'retry') throw new Error(`The feed has an unknown field: ${JSON.stringify(line)}`);
  }

  /** A message that has come is held to the API's description. */
  #dispatch(): void {
    const [event, data] = [this.#event, this.#data.join('\n')];
    if (!(this.#isOfSession && event === 'end'))
      checkMessage({ event, data, ...(this.#id !== null && { id: this.#id }) });
    this.messages.push({ event, data, id: this.lastEventId });
  }
}
