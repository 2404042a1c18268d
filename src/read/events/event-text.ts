/** Events as JSON text. Payloads go in as the very text that was sent. */
import type { StoredEvent } from '../../storage/read/page-request.ts';

/** An event of a page. Ids are ours, but a type's may have come by an import. */
export function eventText({ id, typeId, createdAt, payload }: StoredEvent): string {
  return `{"id":"${id}","typeId":${JSON.stringify(typeId)},"payload":${payload},"createdAt":"${createdAt.toISOString()}"}`;
}

/**
 * The body of a page of events, copied once, into its bytes.
 * @param pagination its fields; undefined ones are left out
 */
export function pageBody(events: readonly StoredEvent[], pagination: object): Buffer {
  const parts = events.map((event, i) => (i === 0 ? '' : ',') + eventText(event));
  parts.unshift('{"success":true,"data":{"events":[');
  parts.push(`],"pagination":${JSON.stringify(pagination)}}}`);

  const body = Buffer.allocUnsafe(parts.reduce((bytes, part) => bytes + Buffer.byteLength(part), 0));
  let written = 0;
  for (const part of parts) written += body.write(part, written);
  return body;
}
