/** A stop loses no answer and waits for nobody who does not come, over both transports. */
import { afterEach, describe, expect, test } from 'vitest';
import { HttpConnection, requestBytes } from '../support/http-client.ts';
import { FaultyProxy, isCopy } from '../support/proxy.ts';
import { CREATE_EVENT, startTestService, TestClock, type TestService, until } from '../support/service.ts';
import { created, refused } from './answers.ts';

const open: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.stop();
});

describe.each(['uws', 'node'] as const)('over %s,', (transport) => {
  const start = async (clock?: TestClock): Promise<{ service: TestService; proxy: FaultyProxy }> => {
    let proxy: FaultyProxy | undefined;
    const service = await startTestService({
      transport,
      database: 'shared',
      ...(clock && { clock }),
      reach: async (address) => {
        proxy = await FaultyProxy.start(address);
        return proxy.address;
      },
    });
    if (proxy === undefined) throw new Error('The service did not ask how to reach its database.');
    open.push(service, proxy);
    created(await service.post());
    return { service, proxy };
  };
  const bytesOf = (service: TestService): Buffer =>
    requestBytes({ method: 'POST', path: CREATE_EVENT, body: service.body('{}') });

  test('security 26: a request that had arrived when the stop began is answered', async () => {
    const { service } = await start();
    const connections = await Promise.all(
      Array.from({ length: 20 }, () => HttpConnection.open(service.port)),
    );
    for (const connection of connections) {
      await connection.write(bytesOf(service));
      created(await connection.response());
    }
    // All of them are with the system, and the service has had no turn to look at them.
    const sent = connections.map((connection) => connection.write(bytesOf(service)));
    const stopped = service.stop();
    await Promise.all(sent);
    for (const connection of connections) created(await connection.response());
    await stopped;
  });

  test('while the last commits are awaited, /readyz is 503, other requests are served, and new connections are refused', async () => {
    const { service, proxy } = await start();
    const [waiting, other] = [
      await HttpConnection.open(service.port),
      await HttpConnection.open(service.port),
    ];
    await other.send({ path: '/livez' });
    await other.response();
    const met = proxy.next(isCopy, 'hold-answer');
    await waiting.write(bytesOf(service));
    await until(() => met() === 1, 'the commit is on its way');
    const stopped = service.stop();
    await until(
      () =>
        HttpConnection.open(service.port).then(
          (connection) => {
            connection.destroy();
            return false;
          },
          () => true,
        ),
      'new connections are refused',
    );
    await other.send({ path: '/readyz' });
    const response = await other.response();
    refused(response, 503, 'UNAVAILABLE', 'Service unavailable');
    expect(response.headers.connection).toBe('close');
    proxy.release();
    const answer = await waiting.response();
    created(answer);
    expect(answer.headers.connection).toBe('close');
    await stopped;
  });

  test('connections without a request do not delay it, a body that does not arrive does by three seconds, and one that keeps arriving is waited for', async () => {
    const clock = new TestClock();
    const { service } = await start(clock);
    const [idle, silent, late, arriving] = await Promise.all([
      HttpConnection.open(service.port),
      HttpConnection.open(service.port),
      HttpConnection.open(service.port),
      HttpConnection.open(service.port),
    ]);
    await idle.send({ path: '/livez' });
    await idle.response();
    for (const connection of [late, arriving]) await connection.write(bytesOf(service).subarray(0, -1));
    created(await service.post());
    const stopped = service.stop();
    await arriving.write('}');
    created(await arriving.response());
    clock.advance(3_000);
    expect((await late.response()).status).toBe(400);
    await stopped;
    await Promise.all([idle.ended(), silent.ended()]);
  });
});
