/** What the dashboard makes of its programs and configurations. test/dashboard/snippets.nightly.test.ts runs them. */
import { expect, test } from 'vitest';
import { fillIn } from '../../dashboard/components/snippets.ts';
import { SNIPPETS } from '../support/snippets.ts';

const place = {
  base: 'http://10.0.0.7:8080',
  appId: 'app_7',
  loggingToken: 'tdl_secret',
  resourceToken: 'tdr_secret',
};

test('there is one for each kind of producer', () => {
  const names = (group: string): string[] =>
    SNIPPETS.filter((one) => one.group === group).map(({ name }) => name);
  expect(names('send')).toEqual(['curl', 'Node', 'Python', 'Batch']);
  expect(names('read')).toEqual(['Read: curl', 'Read: Node', 'Export']);
  expect(names('producers')).toEqual([
    ...[
      'Records',
      'Fluent Bit',
      'Vector',
      'Telegraf',
      'CloudEvents',
      'OpenTelemetry',
      'OTel Collector',
      'pino',
    ],
    ...['winston', 'bunyan', 'log4js', 'Python logging'],
    ...['Segment', 'Elasticsearch', 'Filebeat', 'Logstash', 'rsyslog', 'syslog-ng', 'collectd', 'Annotation'],
  ]);
});

test.each(SNIPPETS.map((one) => [one.name, one] as const))(
  '%s has the address and the token, and nothing left to fill in',
  (_, { group, template }) => {
    const text = fillIn(template, place);
    expect(text).not.toMatch(/\{\{\w+\}\}|undefined/);
    expect(text).toContain('10.0.0.7');
    expect(text).toContain('8080');
    expect(text).toContain(group === 'read' ? place.resourceToken : place.loggingToken);
    const unknown = fillIn(template, { ...place, loggingToken: null, resourceToken: null });
    expect(unknown).toContain(group === 'read' ? 'YOUR_RESOURCE_TOKEN' : 'YOUR_LOGGING_TOKEN');
  },
);

test('addresses without a port have that of their scheme where a configuration needs one', () => {
  const template = '{{base}} {{origin}} {{host}} {{port}} {{tls}}';
  expect(fillIn(template, { ...place, base: 'https://events.example.com' })).toBe(
    'https://events.example.com https://events.example.com:443 events.example.com 443 on',
  );
  expect(fillIn(template, { ...place, base: 'http://10.0.0.7' })).toBe(
    'http://10.0.0.7 http://10.0.0.7:80 10.0.0.7 80 off',
  );
});
