/** Where CloudEvents are sent to: a service for each transport, which the tests of a file share. */
import { beforeAll, describe } from 'vitest';
import { TRANSPORTS } from './fuzz.ts';
import type { HttpResponse } from './http-client.ts';
import { sharedService, type TestService } from './service.ts';

export const PATH = '/v1/cloudevents';
export const STRUCTURED = 'application/cloudevents+json';
export const BATCH = 'application/cloudevents-batch+json';

export interface Receiver {
  readonly service: () => TestService;
  /** With the token of the service's own app, unless the headers say otherwise. */
  readonly post: (
    body: string | Buffer,
    headers: Readonly<Record<string, string | null>>,
  ) => Promise<HttpResponse>;
}

/** Declares tests of CloudEvents over each transport of this run. */
export function overEachTransport(tests: (receiver: Receiver) => void): void {
  const services = new Map<string, TestService>();
  beforeAll(async () => {
    for (const transport of TRANSPORTS)
      services.set(transport, await sharedService({ transport, config: { CREATE_LIMIT_PER_MINUTE: 0 } }));
  });
  describe.each(TRANSPORTS)('over %s,', (transport) => {
    const service = (): TestService => {
      const started = services.get(transport);
      if (started === undefined) throw new Error(`The service over ${transport} is not started.`);
      return started;
    };
    tests({
      service,
      post: (body, headers) =>
        service().request({
          method: 'POST',
          path: PATH,
          body,
          headers: { Authorization: `Bearer ${service().app.loggingToken}`, ...headers },
        }),
    });
  });
}
