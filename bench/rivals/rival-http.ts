/** The HTTP of the rivals: uWebSockets.js, the body, the checks, and 201 when the event is stored. */
import { App, us_socket_local_port } from 'uWebSockets.js';
import { announcePort, checkedEvent, REFUSED, type Registry, type RivalEvent } from './rival-checks.ts';

/** @param store answers once the event is durable; {@link REFUSED} where it is not */
export function serveEvents(
  registry: Registry,
  newId: () => string,
  store: (event: RivalEvent) => Promise<object>,
): void {
  App()
    .post('/public/create_event', (res) => {
      let aborted = false;
      res.onAborted(() => {
        aborted = true;
      });
      const chunks: Buffer[] = [];
      res.onData((chunk, last) => {
        chunks.push(Buffer.from(new Uint8Array(chunk)));
        if (last) void answer(Buffer.concat(chunks).toString());
      });
      const answer = async (text: string): Promise<void> => {
        const event = await checkedEvent(registry, text, newId());
        const outcome = event === null ? REFUSED : await store(event).catch(() => REFUSED);
        if (aborted) return;
        res.cork(() => {
          res.writeStatus(outcome === REFUSED ? '400 Bad Request' : '201 Created');
          res.writeHeader('Content-Type', 'application/json');
          res.end(JSON.stringify(outcome));
        });
      };
    })
    .listen('127.0.0.1', 0, (socket) => announcePort(us_socket_local_port(socket)));
}
