import type { KeyObject } from 'node:crypto';

/** The keys of accounts, each derived from SECRET for one purpose. */
export interface AccountKeys {
  /** AES-256 key of the secrets of second factors at rest. */
  readonly secondFactors: KeyObject;
  /** HMAC key of the challenges between the two steps of a sign-in. */
  readonly challenges: KeyObject;
  /** HMAC key of the devices that an account has signed in from. */
  readonly devices: KeyObject;
  /** AES-256 key of the state of a sign-in that is at an issuer. */
  readonly oidc: KeyObject;
}
