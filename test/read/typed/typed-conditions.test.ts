/** Conditions as people type them: in the grammar of filters, in those of other tools, and what is told where it is neither. */
import { expect, test } from 'vitest';
import { parseFilter } from '../../../src/read/filter/parse-filter.ts';
import { readConditions } from '../../../src/read/typed/typed-conditions.ts';

test.each([
  ['country:DE', ['country:DE']],
  ['country = DE', ['country:DE']],
  ["country == 'DE'", ['country=="DE"']],
  ['country = "DE"', ['country:"DE"']],
  ['country = DE AND plan = pro', ['country:DE', 'plan:pro']],
  ['country:DE plan:pro', ['country:DE', 'plan:pro']],
  ['country=DE && latency >= 300', ['country:DE', 'latency>=300']],
  ['plan != free', ['-plan:free']],
  ['NOT plan:free and country:DE', ['-plan:free', 'country:DE']],
  ['country:DE OR country:FR', ['country:DE,FR']],
  ["country in ('DE', FR)", ['country:"DE",FR']],
  ['country NOT IN (DE, FR)', ['-country:DE, FR']],
  ['user.name:John Smith', ['user.name:John Smith']],
  ['note:"a AND b = c"', ['note:"a AND b = c"']],
  ['"n.o":143', ['"n.o":143']],
  ['-"n.o":143', ['-"n.o":143']],
  ['a:1 b:2 c:3', ['a:1', 'b:2', 'c:3']],
  ['coupon:*', ['coupon:*']],
  ['v == 5', ['v==5']],
  ['v == 5 or v == "5"', ['v==5,"5"']],
  ['not v==true', ['-v==true']],
  ['v:\\*', ['v:\\*']],
  ['v:"a*"', ['v:"a*"']],
])('%s is understood', (text, conditions) => {
  expect(readConditions(text)).toEqual({ conditions });
  for (const condition of conditions) expect(parseFilter(condition), condition).not.toHaveProperty('problem');
});

test.each([
  ['country:DE OR plan:pro', 'OR joins values of one field'],
  ["country like 'D%'", 'type that part alone'],
  ['country:"DE",F*', 'type that part alone'],
  ['v == 5 or v:7', 'OR joins values of one field'],
  ['country:D*', 'type that part alone'],
  ['path =~ check', 'type that part alone'],
  ['(country:DE)', 'brackets are not understood'],
  ['country:"DE', 'closing quote'],
])('%s is refused with the right spelling', (text, said) => {
  expect(readConditions(text)).toEqual({ mistake: expect.stringContaining(said) });
});

test.each(['order', 'order placed', 'black and white', 'country:', 'country = ', '"a phrase"', '5 > '])(
  '%s is no condition, or not yet',
  (text) => {
    expect(readConditions(text)).toBeNull();
  },
);
