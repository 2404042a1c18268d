import fc from 'fast-check';
import { expect, test } from 'vitest';
import { IntrusiveList, type ListMember } from '../../src/http/intrusive-list.ts';

interface Member extends ListMember<Member> {
  readonly name: number;
}

const member = (name: number): Member => ({ name, before: null, after: null });

test('members are iterated in order of insertion, whichever are removed', () => {
  // null: a member is appended; a number: the member at that index is removed, or one appended if there is none.
  fc.assert(
    fc.property(fc.array(fc.option(fc.nat(20))), (steps) => {
      const list = new IntrusiveList<Member>();
      const model: Member[] = [];
      for (const [name, index] of steps.entries()) {
        const [removed] = index === null ? [] : model.splice(index, 1);
        if (removed !== undefined) {
          list.delete(removed);
        } else {
          const added = member(name);
          list.add(added);
          model.push(added);
        }
        expect([...list].map((one) => one.name)).toEqual(model.map((one) => one.name));
        expect(list.isEmpty).toBe(model.length === 0);
      }
    }),
  );
});

test('all members can be removed during the iteration, and added again', () => {
  const list = new IntrusiveList<Member>();
  const members = [1, 2, 3].map(member);
  for (const one of members) list.add(one);
  for (const one of list) list.delete(one);
  expect(list.isEmpty).toBe(true);
  for (const one of members) list.add(one);
  expect([...list]).toEqual(members);
});
