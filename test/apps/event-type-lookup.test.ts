/** What a producer is told of its event's type. */
import { expect, test } from 'vitest';
import { sharedService } from '../support/service.ts';

test('an identifier that came by a restore may be any text: the answer is whole, and says it', async () => {
  const service = await sharedService();
  const publicId = 'typ_"é\\\u2028😀';
  await service.sql`UPDATE event_types SET public_id = ${publicId} WHERE public_id = ${service.type.typeId}`;
  const answer = await service.post({ typeId: publicId });
  expect([answer.status, JSON.parse(answer.body)]).toEqual([
    201,
    expect.objectContaining({ typeId: publicId, success: true }),
  ]);
});
