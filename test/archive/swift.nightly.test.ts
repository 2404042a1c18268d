/** An archive in a bucket of OpenStack Swift: an S3 that checks signatures and digests, and that others have written. */
import { AwsClient } from 'aws4fetch';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ArchiveError, openArchiveStore, probeArchive } from '../../src/archive/store.ts';
import { readConfig } from '../../src/config.ts';
import { hasSwift } from '../support/daemons.ts';
import { SWIFT_KEY_ID, SWIFT_REGION, SWIFT_SECRET, type Swift, startSwift } from '../support/swift.ts';

describe.runIf(hasSwift)('a bucket of Swift', () => {
  let swift: Swift;

  beforeAll(async () => {
    swift = await startSwift();
    const client = new AwsClient({
      ...{ accessKeyId: SWIFT_KEY_ID, secretAccessKey: SWIFT_SECRET },
      ...{ region: SWIFT_REGION, service: 's3', retries: 0 },
    });
    const made = await client.fetch(`${swift.endpoint}/events`, { method: 'PUT' });
    expect(made.status, await made.text()).toBe(200);
  }, 120_000);

  afterAll(() => swift.stop());

  const storeOf = (more: Record<string, string> = {}): ReturnType<typeof openArchiveStore> =>
    openArchiveStore(
      readConfig({
        ...{
          ARCHIVE_URL: 's3://events/a-prefix/of.it',
          AWS_ENDPOINT_URL: swift.endpoint,
          AWS_REGION: SWIFT_REGION,
        },
        ...{ AWS_ACCESS_KEY_ID: SWIFT_KEY_ID, AWS_SECRET_ACCESS_KEY: SWIFT_SECRET },
        ...more,
      }),
    );

  test('takes objects, gives them back and removes them', async () => {
    const own = storeOf();
    await probeArchive(own);
    for (const bytes of [Buffer.alloc(0), Buffer.from('ä'), Buffer.alloc(3_000_000, 7)]) {
      await own.put('one/two-3.parquet', bytes);
      expect((await own.get('one/two-3.parquet')).equals(bytes)).toBe(true);
    }
    await own.remove('one/two-3.parquet');
    await own.remove('one/two-3.parquet');
    await expect(own.get('one/two-3.parquet')).rejects.toMatchObject({ isMissing: true });
  });

  test.each([
    [{ AWS_SECRET_ACCESS_KEY: 'another secret' }, '403 SignatureDoesNotMatch'],
    [{ AWS_ACCESS_KEY_ID: 'test:nobody' }, '403 SignatureDoesNotMatch'],
    [{ AWS_REGION: 'us-west-1' }, '400 AuthorizationHeaderMalformed'],
    [{ ARCHIVE_URL: 's3://other/prefix' }, '404 NoSuchBucket'],
  ])('refuses what is signed or named otherwise (%o)', async (more, reason) => {
    const other = storeOf(more);
    await expect(other.put('a', Buffer.from('1'))).rejects.toThrow(reason);
    const failure: unknown = await other.get('a').catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ArchiveError);
    expect(failure).toMatchObject({ isMissing: false });
  });
});
