/** Progress of a long command on standard error: a bar on a terminal, else a line every few seconds. */

export interface ProgressState {
  /** From 0 to 1; null if the total is unknown. */
  readonly fraction: number | null;
  readonly text: string;
}

const BAR_WIDTH = 24;
const REDRAW_MS = 100;
const LINE_EVERY_MS = 5_000;
const CLEAR_LINE = '\r\u001b[K';

export class Progress {
  readonly #stream = process.stderr;
  #shownAt = this.#stream.isTTY ? Number.NEGATIVE_INFINITY : performance.now();
  #drawn = '';

  /** Prints the state if it is due. */
  update(state: () => ProgressState): void {
    const time = performance.now();
    if (time - this.#shownAt < (this.#stream.isTTY ? REDRAW_MS : LINE_EVERY_MS)) return;
    this.#shownAt = time;
    const { fraction, text } = state();
    const percent = fraction === null ? '' : `${String(Math.floor(fraction * 100)).padStart(3)} %  `;
    if (!this.#stream.isTTY) {
      this.#stream.write(`tidemark: ${percent.trimStart()}${text}\n`);
      return;
    }
    const full = Math.round((fraction ?? 0) * BAR_WIDTH);
    const bar = fraction === null ? '' : `[${'='.repeat(full).padEnd(BAR_WIDTH)}] `;
    this.#drawn = `${bar}${percent}${text}`;
    this.#stream.write(`${CLEAR_LINE}${this.#drawn}`);
  }

  /** Prints a line above the bar. */
  note(line: string): void {
    const isDrawn = this.#drawn !== '';
    this.#stream.write(`${isDrawn ? CLEAR_LINE : ''}tidemark: ${line}\n${this.#drawn}`);
  }

  /** Removes the bar. */
  end(): void {
    if (this.#drawn !== '') this.#stream.write(CLEAR_LINE);
    this.#drawn = '';
  }
}

/** `1,234,567` */
export function grouped(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

/** Formats rates and sizes as `12.3 MB`. */
export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
