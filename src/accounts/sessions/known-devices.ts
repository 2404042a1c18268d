/** The devices that an account has signed in from: a sign-in from another one is told to its owner. */
import { createHmac, type KeyObject } from 'node:crypto';
import { DAY_MS } from '../../base/time-units.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { User } from '../people/users.ts';
import type { Device } from './device.ts';
import { networksOf } from './networks.ts';

/** A device that is not used for so long is new again. */
const FORGET_AFTER_MS = 400 * DAY_MS;
const MAX_OF_ACCOUNT = 200;

/** A device, and what is stored of the address that it was used at. */
export interface UsedDevice {
  readonly device: Device;
  /** Null where no addresses are stored. */
  readonly address: string | null;
}

export class KnownDevices {
  readonly #key: KeyObject;

  /** @param key HMAC key: without it a digest would be the address, found by trying all */
  constructor(key: KeyObject) {
    this.#key = key;
  }

  /**
   * Notes that an account is used from a device.
   * @param judged by which devices are forgotten
   * @returns whether it is new to the account
   */
  async remember(
    sql: Sql | Transaction,
    user: User,
    used: UsedDevice,
    now: number,
    judged = now,
  ): Promise<boolean> {
    const digest = this.#digest(user, used);
    const [row] = await sql<{ isNew: boolean }[]>`
      INSERT INTO known_devices (user_id, digest, last_seen_at) VALUES (${user.id}, ${digest}, ${now})
      ON CONFLICT (user_id, digest) DO UPDATE SET last_seen_at = excluded.last_seen_at
      RETURNING xmax = 0 AS "isNew"`;
    if (row?.isNew !== true) return false;
    await sql`
      DELETE FROM known_devices
       WHERE user_id = ${user.id}
         AND (last_seen_at < ${judged - FORGET_AFTER_MS}
              OR digest IN (SELECT digest FROM known_devices
                             WHERE user_id = ${user.id} ORDER BY last_seen_at DESC, digest OFFSET ${MAX_OF_ACCOUNT}))`;
    return true;
  }

  /** An IPv6 client changes its address within its network all the time. */
  #digest({ userId }: User, { device, address }: UsedDevice): Buffer {
    const [network = ''] = address === null || address.includes('/') ? [address ?? ''] : networksOf(address);
    const text = [userId, device.browser, device.system, network].join('\n');
    return createHmac('sha256', this.#key).update(text).digest();
  }
}
