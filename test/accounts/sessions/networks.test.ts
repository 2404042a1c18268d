import { expect, test } from 'vitest';
import { networksOf } from '../../../src/accounts/sessions/networks.ts';

test.each([
  ['192.0.2.7', ['192.0.2.7']],
  ['::ffff:192.0.2.7', ['192.0.2.7']],
  ['2001:db8:1:2ff:3::4', ['20010db8000102ff/64', '20010db8000102/56', '20010db80001/48']],
  ['2001:DB8:1:2ff::', ['20010db8000102ff/64', '20010db8000102/56', '20010db80001/48']],
  ['fe80::1%eth0', ['fe80000000000000/64', 'fe800000000000/56', 'fe8000000000/48']],
  ['', ['unknown']],
  ['unknown', ['unknown']],
])('the networks of %j, the narrowest first', (address, networks) => {
  expect(networksOf(address).map((name) => name.replace(/^0+/, ''))).toEqual(
    networks.map((name) => name.replace(/^0+/, '')),
  );
});
