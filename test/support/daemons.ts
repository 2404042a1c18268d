/** Where the daemons of the tests are, which send what they collect, and an OpenID provider. */
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

/** LemonLDAP::NG, an OpenID provider, with what its portal loads and Debian's packages only recommend. */
export const STARMAN = '/usr/bin/starman';
export const LEMONLDAP_PORTAL = '/usr/share/lemonldap-ng/portal/htdocs/index.psgi';
const LEMONLDAP_NEEDS = ['/usr/share/perl5/String/Random.pm', '/usr/share/perl5/IO/String.pm'];
export const hasLemonldap = [STARMAN, LEMONLDAP_PORTAL, ...LEMONLDAP_NEEDS].every((path) => existsSync(path));

/** OpenStack Swift, a server of S3. */
export const swiftProgram = (name: string): string => join('/usr/bin', name);
export const hasSwift = ['proxy', 'account', 'container', 'object'].every((name) =>
  existsSync(swiftProgram(`swift-${name}-server`)),
);

/** What is skipped without them. */
export function missingDaemons(): string[] {
  return [
    ...(hasSyslogNg ? [] : [`syslog-ng: not at ${SYSLOG_NG} (SYSLOG_NG_HOME)`]),
    ...(hasRsyslogBulk ? [] : ['omelasticsearch of rsyslog (Debian: apt install rsyslog-elasticsearch)']),
    ...(hasLemonldap
      ? []
      : [
          'LemonLDAP::NG (Debian: apt install liblemonldap-ng-portal-perl starman libstring-random-perl libio-string-perl)',
        ]),
    ...(hasSwift
      ? []
      : [
          'a bucket of OpenStack Swift (Debian: apt install swift-proxy swift-account swift-container swift-object)',
        ]),
    ...(hasCollectd ? [] : ['collectd (Debian: apt install collectd-core libyajl2)']),
  ];
}
