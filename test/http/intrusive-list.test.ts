import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Pending, PendingList } from '../../src/http/intrusive-list.ts';

interface Member extends Pending<Member> {
  readonly name: number;
}

const member = (name: number): Member => ({ name, before: null, after: null });

test('members come in their order, whoever leaves in between', () => {
  // Each number: one more comes, or the one at that place leaves.
  fc.assert(
    fc.property(fc.array(fc.option(fc.nat(20))), (steps) => {
      const list = new PendingList<Member>();
      const model: Member[] = [];
      for (const [name, place] of steps.entries()) {
        const [leaving] = place === null ? [] : model.splice(place, 1);
        if (leaving !== undefined) {
          list.delete(leaving);
        } else {
          const coming = member(name);
          list.add(coming);
          model.push(coming);
        }
        expect([...list].map((one) => one.name)).toEqual(model.map((one) => one.name));
        expect(list.isEmpty).toBe(model.length === 0);
      }
    }),
  );
});

test('all can leave while they are gone through, and come again', () => {
  const list = new PendingList<Member>();
  const members = [1, 2, 3].map(member);
  for (const one of members) list.add(one);
  for (const one of list) list.delete(one);
  expect(list.isEmpty).toBe(true);
  for (const one of members) list.add(one);
  expect([...list]).toEqual(members);
});
