/** Where the daemons of the tests are, which send what they collect. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

export const RSYSLOGD = '/usr/sbin/rsyslogd';
const OMELASTICSEARCH = '/usr/lib/x86_64-linux-gnu/rsyslog/omelasticsearch.so';

export const COLLECTD = '/usr/sbin/collectd';
/** Its library is what Debian's package only recommends. */
const COLLECTD_NEEDS = [
  COLLECTD,
  '/usr/lib/collectd/write_http.so',
  '/usr/lib/x86_64-linux-gnu/libyajl.so.2',
];
export const hasCollectd = COLLECTD_NEEDS.every((path) => existsSync(path));

/** Debian does not install syslog-ng beside rsyslog: SYSLOG_NG_HOME is a folder into which its packages are unpacked. */
const HOME = process.env.SYSLOG_NG_HOME ?? '/';
export const SYSLOG_NG = join(HOME, 'usr/sbin/syslog-ng');
export const SYSLOG_NG_LIBRARIES = join(HOME, 'usr/lib/syslog-ng');

export const hasSyslogNg = existsSync(SYSLOG_NG);
export const hasRsyslogBulk = existsSync(RSYSLOGD) && existsSync(OMELASTICSEARCH);

/** What is skipped without them. */
export function missingDaemons(): string[] {
  return [
    ...(hasSyslogNg ? [] : [`syslog-ng: not at ${SYSLOG_NG} (SYSLOG_NG_HOME)`]),
    ...(hasRsyslogBulk ? [] : ['omelasticsearch of rsyslog (Debian: apt install rsyslog-elasticsearch)']),
    ...(hasCollectd ? [] : ['collectd (Debian: apt install collectd-core libyajl2)']),
  ];
}
