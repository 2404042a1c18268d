/** A name server on this machine, which answers as a test says. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';

const HEADER_BYTES = 12;
const TYPE_A = 1;

export class NameServer {
  readonly #socket: Socket = createSocket('udp4');
  /** The IPv4 address of a name; null: no answer at all. */
  answer: (name: string) => string | null = () => null;
  /** Names that were asked for, each time. */
  asked = 0;

  /** @returns its address with port */
  async listen(): Promise<string> {
    this.#socket.on('error', () => undefined);
    this.#socket.on('message', (question, { port, address }) => {
      const labels: string[] = [];
      let at = HEADER_BYTES;
      for (let length = question[at] ?? 0; length > 0; length = question[at] ?? 0) {
        labels.push(question.toString('latin1', at + 1, at + 1 + length));
        at += 1 + length;
      }
      const type = question.readUInt16BE(at + 1);
      const end = at + 5;
      this.asked += 1;
      const found = this.answer(labels.join('.'));
      if (found === null) return;
      const hasAnswer = type === TYPE_A;
      const head = Buffer.from(question.subarray(0, end));
      // An answer without errors, one question, and one record at most.
      head.writeUInt16BE(0x8180, 2);
      head.writeUInt16BE(hasAnswer ? 1 : 0, 6);
      head.writeUInt16BE(0, 8);
      head.writeUInt16BE(0, 10);
      // The name of the question, type A, class IN, no caching, four bytes.
      const record = Buffer.from([
        0xc0,
        HEADER_BYTES,
        0,
        TYPE_A,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        4,
        ...found.split('.').map(Number),
      ]);
      this.#socket.send(hasAnswer ? Buffer.concat([head, record]) : head, port, address);
    });
    this.#socket.bind(0, '127.0.0.1');
    await once(this.#socket, 'listening');
    return `127.0.0.1:${this.#socket.address().port}`;
  }

  close(): void {
    this.#socket.close();
  }
}
