/** Streaming responses: data is sent as it is written, and a reader that is too slow is disconnected. */

/** The transport's side of a streaming response. No method throws, even after the connection is closed. */
export interface StreamWire {
  /** Bytes that were written and not yet sent; 0 once the connection is closed. */
  readonly unsentBytes: number;
  write(bytes: Buffer): void;
  /** Ends the response after sending what was written before. */
  end(): void;
  /** Closes the connection at once. */
  destroy(): void;
}

/** A response that stays open until the server or the client ends it. */
export interface StreamAnswer {
  readonly status: 200;
  readonly contentType: string;
  /** Further headers. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Text without meaning in the format, such as a comment: uWebSockets.js continues a blocked stream only on a write. */
  readonly filler: string;
  /** Called once, when the head has been written; not called if the client disconnected before. */
  readonly open: (stream: AnswerStream) => void;
}

/** Limit of unsent bytes of one stream: beyond it the connection is closed, and the client can reconnect. */
const MAX_UNSENT_BYTES_OF_STREAM = 1_048_576;

export interface AnswerStreamOptions {
  /** False while the unsent bytes of all responses exceed their limit. */
  readonly hasRoom: () => boolean;
  readonly onClosed: (stream: AnswerStream) => void;
}

/** The writer's side of a streaming response. */
export class AnswerStream {
  readonly #wire: StreamWire;
  readonly #options: AnswerStreamOptions;
  readonly #listeners: (() => void)[] = [];
  #isClosed = false;

  constructor(wire: StreamWire, options: AnswerStreamOptions) {
    this.#wire = wire;
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The listener is called once, when either side has ended the response. */
  whenClosed(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Sends bytes, or closes the connection if too many bytes would wait for the reader. */
  write(bytes: Buffer): void {
    if (this.#isClosed) return;
    const { unsentBytes } = this.#wire;
    const isTooSlow = unsentBytes + bytes.length > MAX_UNSENT_BYTES_OF_STREAM || !this.#options.hasRoom();
    if (unsentBytes > 0 && isTooSlow) {
      this.#wire.destroy();
      this.closed();
    } else {
      this.#wire.write(bytes);
    }
  }

  /** Ends the response. */
  end(): void {
    if (this.#isClosed) return;
    this.#wire.end();
    this.closed();
  }

  /** Called by the transport when the connection is closed. */
  closed(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#options.onClosed(this);
    for (const listener of this.#listeners) listener();
  }
}
