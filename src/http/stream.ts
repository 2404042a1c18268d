/** An answer that goes on: what comes is sent as it comes, to readers of any speed, within a bound. */

/** What a transport gives of a connection whose answer goes on. Nothing of it throws, also once the connection is gone. */
export interface StreamWire {
  /** Bytes that were written and have not left yet; 0 once the connection is gone. */
  readonly unsentBytes: number;
  write(bytes: Buffer): void;
  /** Ends the answer; what was written before still goes out. */
  end(): void;
  /** Ends the connection at once. */
  destroy(): void;
}

/** An answer that goes on until somebody ends it. */
export interface StreamAnswer {
  readonly status: 200;
  readonly contentType: string;
  /** Further headers, as those of every answer. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Text that means nothing in the format: one transport only sends on to a slow reader while it is written to. */
  readonly filler: string;
  /** Called once, when the head has been written; never where the client is gone before. */
  readonly open: (stream: AnswerStream) => void;
}

/** Most that waits for one slow reader: beyond it the connection is closed, and the client may come again. */
const MAX_UNSENT_BYTES = 1_048_576;

export interface AnswerStreamOptions {
  /** False where all slow readers together hold too much. */
  readonly hasRoom: () => boolean;
  readonly onClosed: (stream: AnswerStream) => void;
}

/** The open answer, as its writer has it. */
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

  /** Called once, at the end, whoever brings it about. */
  whenClosed(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Sends bytes; where too much would wait for this reader, ends the connection instead. */
  write(bytes: Buffer): void {
    if (this.#isClosed) return;
    const { unsentBytes } = this.#wire;
    if (unsentBytes > 0 && (unsentBytes + bytes.length > MAX_UNSENT_BYTES || !this.#options.hasRoom())) {
      this.#wire.destroy();
      this.closed();
    } else {
      this.#wire.write(bytes);
    }
  }

  /** Ends the answer. */
  end(): void {
    if (this.#isClosed) return;
    this.#wire.end();
    this.closed();
  }

  /** The transport says that the connection is gone. */
  closed(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#options.onClosed(this);
    for (const listener of this.#listeners) listener();
  }
}
