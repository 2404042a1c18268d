/** Fills the buffers of a process that is at rest to the brim. */
import { FULL, LARGE_CHARACTERS } from '../../src/ingest/queue/commit-buffer.ts';
import { LANES } from '../../src/ingest/queue/idempotent-queue.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import type { IdempotentRequest } from '../../src/storage/write/idempotent-writer.ts';
import { type ProcessSettings, type SimulatedProcess, START } from './process.ts';

/** App and type of the probes, which no client has. */
const APP = 9;
let probes = 0;

/** @throws where a buffer does not take what it has room for */
export async function probeRoom(process: SimulatedProcess, settings: ProcessSettings): Promise<void> {
  const { now, past, requests } = process.queues.of(APP);
  const answers: Promise<readonly unknown[]>[] = [];
  for (const buffer of [now, past]) {
    // The first one so that the limit applies to the second.
    for (const event of fill(settings)) answers.push(buffer.addAll([event]));
    answers.push(Promise.all(fill(settings, LARGE_CHARACTERS).map((event) => buffer.add(event))));
  }
  for (const lane of LANES)
    answers.push(Promise.all(fill(settings).map((event) => requests.add(keyed(event), lane))));
  if ((await Promise.all(answers)).flat().includes(FULL))
    throw new Error('Nothing waits, but the room of what has waited is not given back.');
}

/**
 * Events with as many bytes as a buffer has room for. That it holds no event is seen by its depth.
 * @param most characters of a payload
 */
function fill(
  { COMMIT_BUFFER_BYTES }: ProcessSettings,
  most = Number.POSITIVE_INFINITY,
): readonly AcceptedEvent[] {
  const events = [probe('{}')];
  for (let left = COMMIT_BUFFER_BYTES / 2 - 2; left >= 1; left -= most)
    events.push(probe('x'.repeat(Math.min(most, Math.floor(left)))));
  return events;
}

function probe(payload: string): AcceptedEvent {
  probes += 1;
  return {
    id: `00000000-0000-7000-9000-${probes.toString(16).padStart(12, '0')}`,
    appId: APP,
    typeId: APP,
    createdAt: START,
    payload,
    source: { appId: 'app_9', typeId: 'typ_9', typeName: 'probe' },
  };
}

function keyed(event: AcceptedEvent): IdempotentRequest {
  const answer = { status: 201, body: '' };
  return {
    appId: APP,
    identity: null,
    acceptedAt: START,
    events: [event],
    answer,
    answerRepeated: () => answer,
    answerWithout: () => answer,
  };
}
