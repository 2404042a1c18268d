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
  /**
   * The listener is called once: as soon as more can be written without piling up, at once if so already, or never, if the
   * connection is closed before. A new listener replaces one that has not been called.
   */
  whenTaken(listener: () => void): void;
}

/** A response that stays open until the server or the client ends it. */
export interface StreamAnswer {
  readonly status: 200;
  readonly contentType: string;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Text without meaning in the format, such as a comment: uWebSockets.js continues a blocked stream only on a write. Empty
   * where the writer goes on writing until the end.
   */
  readonly filler: string;
  /** True for a response with an end of its own: where it ends earlier, its connection is closed, so that the client notices. */
  readonly isFinite?: boolean;
  /** Called once, when the head has been written; not called if the client disconnected before. */
  readonly open: (stream: AnswerStream) => void;
}

/** Limit of unsent bytes of one stream: beyond it the connection is closed, and the client can reconnect. */
const MAX_UNSENT_BYTES_OF_STREAM = 1_048_576;

export interface AnswerStreamOptions {
  /** False while the unsent bytes of all responses exceed their limit. */
  readonly hasRoom: () => boolean;
  readonly onClosed: (stream: AnswerStream) => void;
  /** See {@link StreamAnswer}. */
  readonly isFinite: boolean;
}

/** The writer's side of a streaming response. */
export class AnswerStream {
  readonly #wire: StreamWire;
  readonly #options: AnswerStreamOptions;
  readonly #listeners = new Set<() => void>();
  #isClosed = false;
  #onTaken: (() => void) | null = null;

  constructor(wire: StreamWire, options: AnswerStreamOptions) {
    this.#wire = wire;
    this.#options = options;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The listener is called once, when either side has ended the response. @returns takes it back */
  whenClosed(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
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

  /**
   * Sends bytes to a reader that sets the pace.
   * @returns resolves when more can be sent, or the response has ended
   */
  async send(bytes: Buffer): Promise<void> {
    if (this.#isClosed) return;
    this.#wire.write(bytes);
    await new Promise<void>((resolve) => {
      this.#onTaken = resolve;
      this.#wire.whenTaken(resolve);
    });
  }

  /** Ends the response before its end: the client sees that the connection is closed. */
  cut(): void {
    if (this.#isClosed) return;
    this.#wire.destroy();
    this.closed();
  }

  /** The server stops. */
  stop(): void {
    if (this.#options.isFinite) this.cut();
    else this.end();
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
    this.#onTaken?.();
    for (const listener of this.#listeners) listener();
  }
}
