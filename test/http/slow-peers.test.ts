import { expect, test } from 'vitest';
import { SlowPeers } from '../../src/http/slow-peers.ts';
import { TestClock } from '../support/service.ts';

const WINDOW_MS = 30_000;
const LEAST_BYTES = 30 * 16_384;

/** Peers on a clock; a peer moves bytes when the test says so. */
function setUp() {
  const clock = new TestClock();
  const peers = new SlowPeers(WINDOW_MS, clock.monotonic);
  const newPeer = () => {
    const peer = {
      bytes: 1_000,
      cuts: 0,
      moved: () => peer.bytes,
      cut: () => {
        peer.cuts += 1;
      },
    };
    peers.add(peer);
    return peer;
  };
  return { clock, peers, newPeer };
}

test('security 19: a peer that transfers nothing is disconnected after the timeout, once, and not before', () => {
  const { clock, peers, newPeer } = setUp();
  const peer = newPeer();
  clock.advance(WINDOW_MS - 1);
  peers.sweep(false);
  expect(peer.cuts).toBe(0);
  clock.advance(1);
  peers.sweep(false);
  clock.advance(WINDOW_MS);
  peers.sweep(false);
  expect(peer.cuts).toBe(1);
});

test('security 19: a peer below the minimum rate is disconnected; one at that rate is not, however often it is checked', () => {
  const { clock, peers, newPeer } = setUp();
  const [dribbling, steady] = [newPeer(), newPeer()];
  for (let window = 0; window < 5; window += 1) {
    dribbling.bytes += LEAST_BYTES - 1;
    steady.bytes += LEAST_BYTES;
    clock.advance(WINDOW_MS);
    peers.sweep(false);
  }
  expect([dribbling.cuts, steady.cuts]).toEqual([1, 0]);
  clock.advance(WINDOW_MS);
  peers.sweep(false);
  expect(steady.cuts).toBe(1);
});

test('security 19: while too many responses wait, the timeout is ten seconds', () => {
  const { clock, peers, newPeer } = setUp();
  const [slow, quick] = [newPeer(), newPeer()];
  clock.advance(10_000);
  quick.bytes += 10 * 16_384;
  peers.sweep(true);
  expect([slow.cuts, quick.cuts]).toEqual([1, 0]);
});

test('a peer that has read everything is no longer measured', () => {
  const { clock, peers, newPeer } = setUp();
  const peer = newPeer();
  peers.delete(peer);
  clock.advance(WINDOW_MS);
  peers.sweep(true);
  expect(peer.cuts).toBe(0);
});
