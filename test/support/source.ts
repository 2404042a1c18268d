/** An app and a type as clients know them, for events whose way does not lead by a journal. */
import type { EventSource } from '../../src/storage/write/accepted-event.ts';

export const SOURCE: EventSource = { appId: 'app_1', typeId: 'typ_1', typeName: 'a type' };
